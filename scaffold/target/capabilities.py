"""Reads the capabilities of a checkout from its files with ``ast``; nothing is imported."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from scaffold.files.documents import MalformedError, parse_yaml
from scaffold.files.parsing import parse
from scaffold.files.reading import walk
from scaffold.target.pin import text_of
from scaffold.target.request_limits import request_limits

REGISTRY = "verl_omni/pipelines/__init__.py"
MODEL_BASE = "verl_omni/pipelines/model_base.py"
# What every release has: no hook.
BASE_METHODS = frozenset(
    {
        "build_scheduler",
        "forward",
        "forward_and_sample_previous_step",
        "get_class",
        "get_class_by_name",
        "prepare_model_inputs",
        "prepare_processor_files",
        "register",
        "set_timesteps",
    }
)
NON_DIFFUSERS_BASE = "verl_omni/pipelines/non_diffusers_model_base.py"
ROLLOUT_OUTPUT = "verl_omni/pipelines/diffusion_rollout_output.py"
LORA_HOOK = "map_lora_update_to_engine"
WORKER_EXTENSION = "verl_omni.workers.rollout.vllm_rollout.utils.vLLMOmniColocateWorkerExtension"
LORA_HOOK_FOLDERS = ("verl_omni/utils", "verl_omni/workers")
DOCS_INDEX = "docs/index.md"
ROLLOUT_CORRECTION = "verl_omni/trainer/diffusion/rollout_correction.py"
DOCS_EXAMPLES = "docs/examples"
DOCS_LINK_CHECK = "tests/special_sanity/check_example_docs_symlinks.py"
SMOKE_FOLDER = "tests/gpu_smoke"
SMOKE_GROUPS = f"{SMOKE_FOLDER}/select_gpu_smoke_groups.py"
MODELS_PAGE = "docs/start/models.md"
TRAINER_CONFIG = "verl_omni/trainer/config/diffusion_trainer.yaml"
MODEL_CONFIG = "verl_omni/trainer/config/diffusion/model/diffusion_model.yaml"
V0_ENTRY_POINT, V1_ENTRY_POINT = "verl_omni.trainer.main_diffusion", "verl_omni.trainer.main_diffusion_v1"
IO_SPEC = "verl_omni.pipelines.rollout_media"
VERSION_FILE = "verl_omni/version/version"

# An entry of a smoke runner: its function, its number and its title.
RUNNER_ENTRY = re.compile(r'^(run_test|run_selected_test)[ \t]+(\d+)[ \t]+"', re.MULTILINE)
_HEADINGS = {"## Diffusion Image Models", "## Diffusion Video Models"}
_TOCTREE = re.compile(r"^```\{toctree\}\n(?::[^\n]*\n)*:caption: Examples\n", re.MULTILINE)


@dataclass(frozen=True)
class Capabilities:
    """The answers; every field has a counterpart in `ContractProfile`."""

    methods: frozenset[str]
    rollout_result: str
    logprob_difference: bool
    lora_hook: bool
    worker_extension: str | None
    request_batch_default: bool
    docs_links: bool
    docs_link_check: bool
    smoke_runner: str | None
    smoke_groups: str | None
    models_page: str | None
    entry_point: str
    v1_entry_point: str | None
    use_v1: bool
    io_spec: str | None
    request_ids: tuple[str, ...]
    lora_merge: bool
    named_media: bool
    limits: Mapping[str, str] = field(default_factory=dict)
    unsettled: Mapping[str, str] = field(default_factory=dict)


def capabilities(root: Path) -> Capabilities:
    """Read a checkout's capabilities. ``root`` must have passed `missing`."""
    base = _tree(root, MODEL_BASE)
    rollout = _tree(root, ROLLOUT_OUTPUT)
    v1 = V1_ENTRY_POINT if text_of(root, _file(V1_ENTRY_POINT)) is not None else None
    use_v1 = v1 is not None and _configured(root, TRAINER_CONFIG, "trainer", "use_v1") is True
    declared = _fields(_tree(root, _file(IO_SPEC)), "DiffusionIOSpec")
    seen = request_limits(lambda path: _tree(root, path))
    return Capabilities(
        methods=frozenset(_methods(base, "DiffusionModelBase")),
        rollout_result="rollout_output" if rollout and _defines(rollout, "rollout_output") else "custom_output",
        logprob_difference="logprob_abs_diff_max" in (text_of(root, ROLLOUT_CORRECTION) or ""),
        lora_hook=_calls_lora_hook(root),
        worker_extension=_worker_extension(root),
        request_batch_default=_stores(base, "VllmOmniPipelineBase", "supports_request_batch"),
        docs_links=(root / DOCS_EXAMPLES).is_dir() and bool(_TOCTREE.search(text_of(root, DOCS_INDEX) or "")),
        docs_link_check=(root / DOCS_LINK_CHECK).is_file(),
        smoke_runner=_smoke_runner(root),
        smoke_groups=SMOKE_GROUPS if _has_groups(text_of(root, SMOKE_GROUPS) or "") else None,
        models_page=MODELS_PAGE if _HEADINGS.issubset((text_of(root, MODELS_PAGE) or "").splitlines()) else None,
        entry_point=v1 if v1 is not None and use_v1 else V0_ENTRY_POINT,
        v1_entry_point=v1,
        use_v1=use_v1,
        io_spec=IO_SPEC if "primary" in declared else None,
        request_ids=seen.request_ids,
        lora_merge=_configured(root, MODEL_CONFIG, "lora", "merge") is not None,
        named_media=seen.named_media or "artifacts" in declared,
        limits=seen.limits,
        unsettled=seen.unsettled,
    )


def version_of(root: Path) -> str | None:
    """Return the version that a checkout declares, or None."""
    lines = (text_of(root, VERSION_FILE) or "").split()
    return lines[0] if len(lines) == 1 else None


def missing(root: Path) -> str | None:
    """Return the first thing that a verl-omni checkout has and ``root`` lacks, or None."""
    if not root.is_dir():
        return "it is not a folder"
    for path in (REGISTRY, MODEL_BASE, NON_DIFFUSERS_BASE):
        if not (root / path).is_file():
            return f"it has no {path}"
    for path, name in ((MODEL_BASE, "DiffusionModelBase"), (NON_DIFFUSERS_BASE, "NonDiffusersModelBase")):
        if _class(_tree(root, path), name) is None:
            return f"its {path} defines no {name}"
    return None


def _tree(root: Path, path: str) -> ast.Module | None:
    text = text_of(root, path)
    try:
        return None if text is None else parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


def _class(tree: ast.Module | None, name: str) -> ast.ClassDef | None:
    body = tree.body if tree else []
    return next((node for node in body if isinstance(node, ast.ClassDef) and node.name == name), None)


def _methods(tree: ast.Module | None, class_name: str) -> set[str]:
    node = _class(tree, class_name)
    return {item.name for item in node.body if isinstance(item, ast.FunctionDef)} if node else set()


def _fields(tree: ast.Module | None, class_name: str) -> set[str]:
    node = _class(tree, class_name)
    targets = (item.target for item in node.body if isinstance(item, ast.AnnAssign)) if node else ()
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _defines(tree: ast.Module, function: str) -> bool:
    return any(isinstance(node, ast.FunctionDef) and node.name == function for node in tree.body)


def _stores(tree: ast.Module | None, class_name: str, attribute: str) -> bool:
    node = _class(tree, class_name)
    return node is not None and any(
        isinstance(item, ast.Attribute) and item.attr == attribute and isinstance(item.ctx, ast.Store)
        for item in ast.walk(node)
    )


def _calls_lora_hook(root: Path) -> bool:
    for folder in LORA_HOOK_FOLDERS:
        found = [Path(place, name) for place, _, names in walk(root / folder, inside=root) for name in names]
        for path in sorted(file.relative_to(root).as_posix() for file in found if file.suffix == ".py"):
            if LORA_HOOK not in (text_of(root, path) or ""):
                continue
            tree = _tree(root, path)
            # A mention in a comment or a docstring is not a call.
            if tree and any(
                (isinstance(node, ast.Constant) and node.value == LORA_HOOK)
                or (isinstance(node, ast.Attribute) and node.attr == LORA_HOOK)
                for node in ast.walk(tree)
            ):
                return True
    return False


def _worker_extension(root: Path) -> str | None:
    module, _, name = WORKER_EXTENSION.rpartition(".")
    return WORKER_EXTENSION if _class(_tree(root, _file(module)), name) is not None else None


def _file(module: str) -> str:
    return f"{module.replace('.', '/')}.py"


def _configured(root: Path, path: str, *keys: str) -> object:
    """Return a value of a YAML file of the checkout, or None."""
    try:
        value: object = parse_yaml(text_of(root, path) or "")
    except MalformedError:
        return None
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _has_groups(text: str) -> bool:
    """Whether a script has the table of patterns, with the group of diffusion."""
    return '\n    "ci-e2e-diffusion": (\n' in text.partition("\nGROUP_PATTERNS = {")[2]


def _smoke_runner(root: Path) -> str | None:
    """Return the runner of diffusion end-to-end scripts: its own script if there is one, else the common one."""
    for name in ("run_gpu_smoke_diffusion_e2e.sh", "run_gpu_smoke_tests.sh"):
        path = f"{SMOKE_FOLDER}/{name}"
        if RUNNER_ENTRY.search(text_of(root, path) or ""):
            return path
    return None
