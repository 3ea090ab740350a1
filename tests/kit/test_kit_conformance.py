"""The kit against the real libraries, wherever their sources are given.

``VERL_OMNI_SRC`` names a verl-omni checkout (tags included, if older releases are to be compared too) and
``VLLM_OMNI_SRC`` a folder that holds ``vllm_omni/``. Sources are parsed, not imported.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaffold.files.resources import kit_root

torch = pytest.importorskip("torch")

Read = Callable[[str], str]
VERL_OMNI = os.environ.get("VERL_OMNI_SRC", "")
VLLM_OMNI = os.environ.get("VLLM_OMNI_SRC", "")
needs_verl_omni = pytest.mark.skipif(not VERL_OMNI, reason="VERL_OMNI_SRC names no verl-omni checkout")
needs_vllm_omni = pytest.mark.skipif(not VLLM_OMNI, reason="VLLM_OMNI_SRC names no folder with vllm_omni/")

MODEL_BASE = "verl_omni/pipelines/model_base.py"
MODULE_BASE = "verl_omni/pipelines/non_diffusers_model_base.py"
SCHEDULER = "verl_omni/pipelines/schedulers/flow_match_sde.py"
ROLLOUT_OUTPUT = "verl_omni/pipelines/diffusion_rollout_output.py"
OF_ROLLOUTS = ("rollout_output", "wrap_rollout_postprocessor")

SIGNATURES = """
import importlib, inspect, json
found = {}
for module, name in json.loads(TARGETS):
    try:
        thing = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError:
        found[name] = None
        continue
    functions = {name: thing} if inspect.isfunction(thing) else {
        key: getattr(value, "__func__", value) for key, value in vars(thing).items()
        if inspect.isfunction(getattr(value, "__func__", value))
    }
    found[name] = {
        key: [[p.name, p.kind.name, None if p.default is p.empty else repr(p.default)]
              for p in inspect.signature(function).parameters.values()]
        for key, function in functions.items()
    }
    if hasattr(thing, "__abstractmethods__"):
        found[name + " abstract"] = sorted(thing.__abstractmethods__)
print(json.dumps(found))
"""

FIELDS = """
import dataclasses, importlib, json
found = {}
for module, name in json.loads(TARGETS):
    try:
        thing = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError:
        found[name] = None
        continue
    found[name] = {
        "fields": {f.name: repr(f.default) for f in dataclasses.fields(thing) if f.default is not dataclasses.MISSING},
        "factories": [f.name for f in dataclasses.fields(thing) if f.default_factory is not dataclasses.MISSING],
        "required": [f.name for f in dataclasses.fields(thing)
                     if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING],
        "members": sorted(k for c in thing.__mro__[:-1] for k, value in vars(c).items() if not k.startswith("_")
                          and (callable(getattr(thing, k)) or isinstance(value, property))),
    }
print(json.dumps(found))
"""


def survey(run_python: Any, code: str, targets: list[tuple[str, str]], profile: str) -> dict[str, Any]:
    """What the kit has, asked in a child process under ``profile``."""
    program = f"TARGETS = {json.dumps(targets)!r}\n{code}"
    return json.loads(run_python(program, kit_root(), profile=profile))


def tagged(tag: str) -> Read:
    """Read files of a release from the checkout's history; ``main`` is the working tree."""
    if tag == "main":
        return lambda path: Path(VERL_OMNI, path).read_text(encoding="utf-8")

    def read(path: str) -> str:
        command = ["git", "-C", VERL_OMNI, "show", f"{tag}:{path}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise FileNotFoundError(path)
        return done.stdout

    try:
        read(MODEL_BASE)
    except FileNotFoundError:
        pytest.skip(f"the checkout has no tag {tag}")
    return read


def parameters(function: ast.FunctionDef) -> list[list[str | None]]:
    """Name, kind and default of each parameter, as ``inspect`` would say them."""
    spec = function.args
    positional = [*spec.posonlyargs, *spec.args]
    padded: list[ast.expr | None] = [None] * (len(positional) - len(spec.defaults))
    rows = [
        [argument.arg, "POSITIONAL_OR_KEYWORD", default]
        for argument, default in zip(positional, [*padded, *spec.defaults], strict=True)
    ]
    rows += [[spec.vararg.arg, "VAR_POSITIONAL", None]] if spec.vararg else []
    rows += [[a.arg, "KEYWORD_ONLY", d] for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)]
    rows += [[spec.kwarg.arg, "VAR_KEYWORD", None]] if spec.kwarg else []
    return [[name, kind, None if default is None else literal(default)] for name, kind, default in rows]


def literal(node: ast.expr) -> str:
    """``repr`` of a default: a constant, a torch dtype or a call of float."""
    return repr(eval(compile(ast.Expression(node), "default", "eval"), {"torch": torch, "float": float}))


def definition(text: str, name: str) -> Any:
    return next(node for node in ast.parse(text).body if getattr(node, "name", None) == name)


def methods(text: str, name: str) -> dict[str, Any]:
    found = definition(text, name)
    functions = [found] if isinstance(found, ast.FunctionDef) else found.body
    return {node.name: parameters(node) for node in functions if isinstance(node, ast.FunctionDef)}


def abstract(text: str, name: str) -> list[str]:
    return sorted(
        node.name
        for node in definition(text, name).body
        if isinstance(node, ast.FunctionDef) and any("abstractmethod" in ast.unparse(d) for d in node.decorator_list)
    )


@needs_verl_omni
@pytest.mark.parametrize("release", ["v0.1.0", "v0.2.0", "main"])
def test_signatures_of_each_release(run_python: Any, release: str) -> None:
    read = tagged(release)
    kit = survey(
        run_python,
        SIGNATURES,
        [
            ("verl_omni.pipelines.model_base", "DiffusionModelBase"),
            ("verl_omni.pipelines.model_base", "VllmOmniPipelineBase"),
            ("verl_omni.pipelines.non_diffusers_model_base", "NonDiffusersModelBase"),
            ("verl_omni.pipelines.schedulers", "FlowMatchSDEDiscreteScheduler"),
            *(("verl_omni.pipelines.diffusion_rollout_output", name) for name in OF_ROLLOUTS),
        ],
        release,
    )
    for path, name in (
        (MODEL_BASE, "DiffusionModelBase"),
        (MODEL_BASE, "VllmOmniPipelineBase"),
        (MODULE_BASE, "NonDiffusersModelBase"),
        (SCHEDULER, "FlowMatchSDEDiscreteScheduler"),
    ):
        real = {key: value for key, value in methods(read(path), name).items() if public(key)}
        assert {key: value for key, value in kit[name].items() if public(key)} == real, name
        if f"{name} abstract" in kit:
            assert kit[f"{name} abstract"] == abstract(read(path), name)

    for name in OF_ROLLOUTS:
        try:
            assert kit[name] == methods(read(ROLLOUT_OUTPUT), name)
        except FileNotFoundError:
            assert kit[name] is None
    register = ast.unparse(definition(read(MODEL_BASE), "VllmOmniPipelineBase"))
    profile = json.loads((kit_root() / "omni_scaffold_kit" / "profiles" / f"{release}.json").read_text())
    assert profile["marks_request_batch"] == ("supports_request_batch" in register)


def public(name: str) -> bool:
    """Names that packages call or override, the checkpointing helper included."""
    return not name.startswith("_") or name == "_checkpointed_call"


@needs_verl_omni
@pytest.mark.parametrize("release", ["v0.1.0", "v0.2.0", "main"])
def test_configuration_defaults_of_each_release(run_python: Any, release: str) -> None:
    read = tagged(release)
    classes = {
        "DiffusionModelConfig": "verl_omni/workers/config/diffusion/model.py",
        "DiffusionPipelineConfig": "verl_omni/workers/config/diffusion/rollout.py",
        "DiffusionRolloutAlgoConfig": "verl_omni/workers/config/diffusion/rollout.py",
    }
    kit = survey(run_python, FIELDS, [("verl_omni.workers.config", name) for name in classes], release)
    for name, path in classes.items():
        compare_fields(kit[name], definition(read(path), name), ignore={"path", "algorithm"})  # MISSING over there


def compare_fields(kit: dict[str, Any], real: ast.ClassDef, ignore: frozenset[str] | set[str] = frozenset()) -> None:
    """Every kit field is a real one with the same default, and the same fields are required, in the same order."""
    annotated = [n for n in real.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)]
    defaults = {node.target.id: node.value for node in annotated}  # type: ignore[union-attr]
    assert kit["required"] == [name for name, value in defaults.items() if value is None]
    for name, default in kit["fields"].items():
        assert name in defaults, f"{real.name}.{name} does not exist"
        if name not in ignore and defaults[name] is not None and "field(" not in ast.unparse(defaults[name]):
            try:
                expected = literal(defaults[name])
            except NameError:
                continue
            assert default == expected, f"{real.name}.{name}"
    for name in kit["factories"]:
        assert "default_factory" in ast.unparse(defaults[name]), f"{real.name}.{name}"


@needs_verl_omni
def test_hand_written_package_of_the_checkout_imports(run_python: Any) -> None:
    pytest.importorskip("diffusers")
    pytest.importorskip("tensordict")
    code = (
        "import verl_omni.pipelines.bagel_flow_grpo as package\n"
        "from verl_omni.pipelines.model_base import DiffusionModelBase, VllmOmniPipelineBase\n"
        "key = ('OmniBagelForConditionalGeneration', 'flow_grpo')\n"
        "print(package.__file__)\n"
        "print(DiffusionModelBase.get_class_by_name(*key).__name__, VllmOmniPipelineBase.get_class(*key).__name__)\n"
    )
    file, names = run_python(code, kit_root(), Path(VERL_OMNI)).splitlines()
    assert Path(file).is_relative_to(Path(VERL_OMNI))
    assert names == "BagelDiffusion BagelPipelineWithLogProb"


@needs_vllm_omni
def test_requests_and_outputs_of_vllm_omni(run_python: Any) -> None:
    root = Path(VLLM_OMNI)
    match = re.search(r"version = '([^']+)'", (root / "vllm_omni" / "_version.py").read_text())
    assert match is not None
    folder = kit_root() / "omni_scaffold_kit" / "profiles"
    pairs = {json.loads(file.read_text())["vllm_omni"]: file.stem for file in folder.glob("*.json")}
    profile = pairs.get(match[1], "main")
    classes = {
        "DiffusionOutput": "vllm_omni/diffusion/data.py",
        "OmniDiffusionConfig": "vllm_omni/diffusion/data.py",
        "OmniDiffusionRequest": "vllm_omni/diffusion/request.py",
        "DiffusionRequestBatch": "vllm_omni/diffusion/worker/request_batch.py",
        "OmniDiffusionSamplingParams": "vllm_omni/inputs/data.py",
    }
    targets = [(path.removesuffix(".py").replace("/", "."), name) for name, path in classes.items()]
    kit = survey(run_python, FIELDS, targets, profile)
    for name, path in classes.items():
        if kit[name] is None:
            assert not (root / path).exists(), f"{path} exists in {match[1]}"
            continue
        real = definition((root / path).read_text(encoding="utf-8"), name)
        compare_fields(kit[name], real)
        real_members = {node.name for node in real.body if isinstance(node, ast.FunctionDef)}
        assert set(kit[name]["members"]) <= real_members, name

    real_output = definition((root / classes["DiffusionOutput"]).read_text(encoding="utf-8"), "DiffusionOutput")
    assert ("custom_output" in ast.unparse(real_output)) == ("custom_output" in kit["DiffusionOutput"]["factories"])


@needs_vllm_omni
def test_constructor_of_a_pipeline(run_python: Any) -> None:
    """The pipelines that step with a scheduler of their own are built as the stand-in is."""
    kit = survey(run_python, SIGNATURES, [("omni_scaffold_kit.stand_in_pipeline", "StandInPipeline")], "main")
    models = Path(VLLM_OMNI, "vllm_omni", "diffusion", "models")
    texts = [path.read_text(encoding="utf-8") for path in models.glob("*/pipeline_*.py")]
    checked = 0
    for text in (text for text in texts if "self.scheduler_kwargs" in text):
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and "self.scheduler_kwargs" in ast.unparse(node):
                assert methods(text, node.name)["__init__"] == kit["StandInPipeline"]["__init__"], node.name
                checked += 1
    assert checked
