"""The topologies in which the engine runs the pipeline as a stage, and how else it is told which class to run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from scaffold.errors import ScaffoldError
from scaffold.files.documents import parse_yaml
from scaffold.inspect.facts import Evidence, Fact, fact
from scaffold.inspect.program import Program
from scaffold.source.syntax import keyword_of, walk_tree

ORDER = 16
KEYS = (
    "detail.engine.topologies",
    "detail.engine.class_option",
    "detail.engine.deploy_settings",
    "detail.engine.registers",
    "detail.engine.class_by_config",
)

_FOLDERS = ("vllm_omni/model_executor/models/", "vllm_omni/diffusion/models/")
_FILES = ("/pipeline.py", "_pipeline_config.py")
_REGISTRY = "vllm_omni/config/pipeline_registry.py"
_REGISTERS = "register_pipeline"
_OPTIONS = "vllm_omni/entrypoints/cli/serve.py"
_OPTION = "--model-class-name"
_DEPLOY = "vllm_omni/deploy/"
# Where a stage runs and how much of a device it takes is the training script's to say.
_PLACED = ("pipeline", "stages", "platforms", "async_chunk", "stage_id", "devices", "default_sampling_params",
           "parallel_config", "gpu_memory_utilization")  # fmt: skip


def answers(program: Program) -> dict[str, Fact]:
    """Return the facts of ``KEYS``."""
    return {**_of_engine(program), **_class_by_config(program)}


def _of_engine(program: Program) -> dict[str, Fact]:
    """``topologies``: ``name``, ``stage`` of the pipeline, ``before`` (stages in front), ``output``, ``file``.

    ``registers`` is the function with which a package brings a topology of its own.
    """
    facts: dict[str, Fact] = {}
    found: list[dict[str, Any]] = []
    places: list[Evidence] = []
    for topology, place in _topologies(program):
        found.append(topology)
        places.append(place)
    if program.target.registry_keys and program.source.exists(_REGISTRY):
        facts["detail.engine.topologies"] = fact(found, places or [Evidence(_REGISTRY, 1)])
    alone = [topology for topology in found if not topology["before"]]
    if alone:
        facts.update(_settings(program, alone[0]))
    line = _line(program, _OPTIONS, f'"{_OPTION}"')
    if line is not None:
        facts["detail.engine.class_option"] = fact(_OPTION.strip("-").replace("-", "_"), [Evidence(_OPTIONS, line)])
    line = _line(program, _REGISTRY, f"def {_REGISTERS}(")
    if line is not None:
        facts["detail.engine.registers"] = fact(_REGISTERS, [Evidence(_REGISTRY, line)])
    return facts


def _topologies(program: Program) -> Iterator[tuple[dict[str, Any], Evidence]]:
    source, keys = program.source, program.target.registry_keys
    if not keys or not source.exists(_REGISTRY):
        return
    registered = source.read(_REGISTRY)
    for file in source.files("vllm_omni/"):
        if not file.startswith(_FOLDERS) or not file.endswith(_FILES):
            continue
        if not any(f'"{key}"' in source.read(file) for key in keys):
            continue
        try:
            tree = source.tree(file)
        except ScaffoldError:
            continue
        constants = _constants(tree)
        for node in walk_tree(tree):
            topology = _topology(node, keys, constants)
            if topology is not None and f'"{topology["name"]}"' in registered:
                yield topology, Evidence(file, getattr(node, "lineno", 1))


def _settings(program: Program, topology: dict[str, Any]) -> dict[str, Fact]:
    """What vllm-omni's own file for a topology of one stage sets; where the stage is placed is left out."""
    file = f"{_DEPLOY}{topology['file']}"
    if not program.source.exists(file):
        return {}
    text = program.source.read(file)
    try:
        content = parse_yaml(text)
        (stage,) = content["stages"]
        if content.get("pipeline", topology["name"]) != topology["name"]:
            return {}
        settings = {
            "engine": _kept(content),
            "stage": _kept(stage),
            "sampling": stage.get("default_sampling_params"),
        }
    except (TypeError, KeyError, ValueError, AttributeError):
        return {}
    return {"detail.engine.deploy_settings": fact(settings, [Evidence(file, 1)])}


def _kept(settings: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key not in _PLACED and value is not None}


def _constants(tree: ast.Module) -> dict[str, str]:
    """Strings that a module's globals hold."""
    return {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _topology(node: ast.AST, keys: tuple[str, ...], constants: dict[str, str]) -> dict[str, Any] | None:
    if not isinstance(node, ast.Call) or not keyword_of(node, "model_type") or not keyword_of(node, "stages"):
        return None
    name, whole = _text(node, "model_type", constants), _text(node, "model_arch", constants)
    listed = keyword_of(node, "stages")
    if name is None or not isinstance(listed, (ast.Tuple, ast.List)):
        return None
    stages = [stage for stage in listed.elts if isinstance(stage, ast.Call)]
    if len(stages) != len(listed.elts):
        return None
    for index, stage in enumerate(stages):
        kind = keyword_of(stage, "execution_type")
        if not isinstance(kind, ast.Attribute) or kind.attr != "DIFFUSION":
            continue
        if (_text(stage, "model_arch", constants) or whole) in keys:
            before = [_text(earlier, "model_stage", constants) or "?" for earlier in stages[:index]]
            return {
                "name": name,
                "stage": index,
                "before": before,
                "output": _text(stage, "final_output_type", constants),
                "file": _text(node, "default_deploy_config_name", constants) or f"{name}.yaml",
            }
    return None


def _text(node: ast.Call, name: str, constants: dict[str, str]) -> str | None:
    value = keyword_of(node, name)
    if isinstance(value, ast.Name):
        return constants.get(value.id)
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None


def _line(program: Program, file: str, text: str) -> int | None:
    """Return the line of a file that holds a text; None where there is none."""
    if not program.source.exists(file):
        return None
    lines = program.source.read(file).splitlines()
    return next((number for number, line in enumerate(lines, start=1) if text in line), None)


# Whether the engine finds the pipeline by the checkpoint's own configuration, without being told a topology.

_ENGINE = "vllm_omni/diffusion/data.py"


def _class_by_config(program: Program) -> dict[str, Fact]:
    """True where the engine's options set the pipeline's class to this one by what ``config.json`` says."""
    source = program.source
    if not source.exists(_ENGINE) or not program.target.registry_keys:
        return {}
    if not any(key in source.read(_ENGINE) for key in program.target.registry_keys):
        return {}
    for node in walk_tree(source.tree(_ENGINE)):
        value = node.value if isinstance(node, (ast.Assign, ast.Return)) else None
        if isinstance(value, ast.Constant) and value.value in program.target.registry_keys:
            return {"detail.engine.class_by_config": fact(True, [Evidence(_ENGINE, value.lineno)])}
    return {}
