"""What the checklist asks for, taken out of a package: one row an item, found by what it is and not by a text."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

PACKAGE = "verl_omni/pipelines/bagel_flow_grpo"
INIT = f"{PACKAGE}/__init__.py"
REGISTRY = "verl_omni/pipelines/__init__.py"
ARCHITECTURE = "OmniBagelForConditionalGeneration"
Files = dict[str, str]


class Deletion(NamedTuple):
    """One thing that is taken out.

    Attributes:
        item: of the checklist.
        what: is taken out.
        edit: takes it out of the files; False where the package has no such thing.
        rules: of which one has to speak; empty for those that cite the item.
    """

    item: str
    what: str
    edit: Callable[[Files], bool]
    rules: tuple[str, ...] = ()


def _classes(files: Files, kind: str) -> Iterator[tuple[str, ast.ClassDef]]:
    """Yield the classes of a kind: config, module, training, rollout, wrapper."""
    for path in sorted(files):
        if not path.startswith(f"{PACKAGE}/") or not path.endswith(".py") or "sft" in path:
            continue
        for node in ast.parse(files[path]).body:
            if isinstance(node, ast.ClassDef) and _kind(node) == kind:
                yield path, node


def _kind(node: ast.ClassDef) -> str:
    bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    methods = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
    if "NonDiffusersModelBase" in bases:
        return "module"
    if "DiffusionModelBase" in bases:
        return "training"
    if any(base.endswith("Pipeline") for base in bases):
        return "rollout"
    if "from_model_path" in methods:
        return "config"
    return "wrapper" if "step" in methods else ""


def _cut(text: str, first: int, last: int, instead: str = "") -> str:
    lines = text.splitlines(keepends=True)
    return "".join([*lines[: first - 1], instead, *lines[last:]])


def _place(node: ast.AST) -> tuple[int, int]:
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(d.lineno for d in decorators)]), node.end_lineno or 0  # type: ignore[attr-defined]


def member(kind: str, name: str) -> Callable[[Files], bool]:
    """Take a method or an attribute out of a class."""

    def edit(files: Files) -> bool:
        for path, cls in _classes(files, kind):
            for node in cls.body:
                names = [getattr(node, "name", "")]
                if isinstance(node, (ast.Assign, ast.AnnAssign)):
                    names = [ast.unparse(t) for t in (node.targets if isinstance(node, ast.Assign) else [node.target])]
                if name in names:
                    files[path] = _cut(files[path], *_place(node), instead="" if len(cls.body) > 1 else "    pass\n")
                    return True
        return False

    return edit


def decorator(kind: str) -> Callable[[Files], bool]:
    """Take the decorators off a class."""

    def edit(files: Files) -> bool:
        for path, cls in _classes(files, kind):
            if cls.decorator_list:
                files[path] = _cut(files[path], _place(cls)[0], cls.lineno - 1)
                return True
        return False

    return edit


def base(kind: str) -> Callable[[Files], bool]:
    """Let a class inherit a plain module."""

    def edit(files: Files) -> bool:
        for path, cls in _classes(files, kind):
            old = f"class {cls.name}({ast.unparse(cls.bases[0])})"
            files[path] = files[path].replace(old, f"class {cls.name}(torch.nn.Module)")
            return True
        return False

    return edit


def statement(kind: str, method: str, pattern: str) -> Callable[[Files], bool]:
    """Take the statements of a method that a pattern fits out of it."""

    def edit(files: Files) -> bool:
        for path, cls in _classes(files, kind):
            for function in cls.body:
                if not isinstance(function, ast.FunctionDef) or function.name != method:
                    continue
                fitting = [n for n in ast.walk(function) if isinstance(n, ast.stmt) and n is not function]
                fitting = [n for n in fitting if re.search(pattern, ast.unparse(n), re.DOTALL)]
                fitting = [n for n in fitting if not any(m is not n and m in ast.walk(n) for m in fitting)]
                for node in sorted(fitting, key=lambda n: -n.lineno):
                    indent = " " * node.col_offset
                    files[path] = _cut(files[path], *_place(node), instead=f"{indent}pass\n")
                if fitting:
                    return True
        return False

    return edit


def without_checkpointing(found: re.Match[str]) -> str:
    """Call a layer itself, and hand it nothing to recompute with."""
    return f"{found[2]}({found[1]}" if found[2] else ""


def text(kind: str, pattern: str, instead: str | Callable[[re.Match[str]], str] = "") -> Callable[[Files], bool]:
    """Replace what a pattern fits in the file of a class."""

    def edit(files: Files) -> bool:
        for path, _ in _classes(files, kind):
            files[path], count = re.subn(pattern, instead, files[path])
            return count > 0
        return False

    return edit


def removed(pattern: str) -> Callable[[Files], bool]:
    """Take files away."""

    def edit(files: Files) -> bool:
        gone = [path for path in files if re.fullmatch(pattern, path)]
        for path in gone:
            del files[path]
        return bool(gone)

    return edit


def lines(paths: str, pattern: str) -> Callable[[Files], bool]:
    """Take lines out of files."""

    def edit(files: Files) -> bool:
        found = False
        for path in [path for path in files if re.fullmatch(paths, path)]:
            kept = [line for line in files[path].splitlines(keepends=True) if not re.search(pattern, line)]
            found |= len(kept) < len(files[path].splitlines())
            files[path] = "".join(kept)
        return found

    return edit


def recorded(edit: Callable[[Files], bool]) -> Callable[[Files], bool]:
    """Only in a package that records what it was made for: in another the text does not tell what is missing."""
    return lambda files: f"{PACKAGE}/scaffold.toml" in files and edit(files)


_DATA = r"examples/flowgrpo_trainer/data_process/bagel_\w+\.py"
_LAUNCH = r"examples/flowgrpo_trainer/bagel/run_\w+\.sh"
_SMOKE = r"tests/special_e2e/run_flowgrpo_bagel\w*\.sh"
_DUMMY = r"tests/special_e2e/create_dummy_bagel\w*\.py"


def _column_of_ids(files: dict[str, str]) -> bool:
    """Take the ids out of what the rollout returns, or out of the data where training reads them from there."""
    rollout = lines(r"verl_omni/pipelines/.*rollout.*", r'"encoded_prompt_ids":')
    return rollout(files) or lines(_DATA, r'"prompt_token_ids":')(files)


DELETIONS = (
    Deletion("M1", "save_pretrained() of the configuration", member("config", "save_pretrained")),
    Deletion("M1", "from_model_path()", text("config", r"\bdef from_model_path\b", "def read")),
    Deletion("M1", "the dataclass decorator", decorator("config")),
    Deletion("M2", "the base class of the module", base("module")),
    Deletion("M3", "_no_split_modules", member("module", "_no_split_modules")),
    Deletion("M4", "_supports_gradient_checkpointing", member("module", "_supports_gradient_checkpointing")),
    Deletion(
        "M5",
        "_checkpointed_call()",
        text("module", r"self\._checkpointed_call\((\s*)(\w+),|, self\._checkpointed_call\b", without_checkpointing),
    ),
    Deletion("M6", "from_pretrained()", member("module", "from_pretrained")),
    Deletion("M6", "forward()", member("module", "forward")),
    Deletion("M7", "the time embedding", statement("module", "__init__", r"self\.time_embedder\b")),
    Deletion("M7", "the position embedding", statement("module", "__init__", r"self\.latent_pos_embed\b")),
    Deletion("M7", "the token embedding", statement("module", "__init__", r"self\.embed_tokens\b")),
    Deletion("M7", "the way in for latents", statement("module", "__init__", r"self\.vae2llm\b")),
    Deletion("M7", "the way out for latents", statement("module", "__init__", r"self\.llm2vae\b")),
    Deletion("M8", "the weights of the latents' norm", statement("module", "__init__", r"self\.norm_moe_gen\b")),
    Deletion("M9", "the end token", member("config", "end_of_image_id")),
    Deletion("T1", "the registration for training", decorator("training")),
    Deletion("T2", "build_module()", member("training", "build_module")),
    Deletion("T3", "build_scheduler()", member("training", "build_scheduler")),
    Deletion("T3", "set_timesteps()", member("training", "set_timesteps")),
    Deletion("T3", "the shared schedule", statement("training", "set_timesteps", r"setup_bagel_sigmas")),
    Deletion("T4", "prepare_model_inputs()", member("training", "prepare_model_inputs")),
    Deletion("T5", "forward_and_sample_previous_step()", member("training", "forward_and_sample_previous_step")),
    Deletion("T3", "the scheduler it returns", statement("training", "build_scheduler", r"^return ")),
    Deletion("T5", "what the step returns", statement("training", "forward_and_sample_previous_step", r"^return ")),
    Deletion("M6", "what forward() returns", statement("module", "forward", r"^return ")),
    Deletion("R3", "what step() returns", statement("wrapper", "step", r"^return ")),
    Deletion("R6", "what forward() of the rollout returns", statement("rollout", "forward", r"^return ")),
    Deletion("R1", "the registration for rollout", decorator("rollout")),
    Deletion("R2", "the upstream pipeline", base("rollout")),
    Deletion("R2", "the pipeline's __init__()", statement("rollout", "__init__", r"super\(\)\.__init__")),
    Deletion("R3", "the scheduler's wrapper", statement("rollout", "__init__", r"^self\.scheduler\b")),
    Deletion("R3", "step() of the wrapper", member("wrapper", "step")),
    Deletion("R5", "the prompt's text", statement("rollout", "forward", r"_ensure_bagel_prompt_text")),
    Deletion("R6", "forward()", member("rollout", "forward")),
    Deletion("R6", "the window", statement("rollout", "forward", r"_?pick_sde_window")),
    Deletion("R2", "load_weights()", member("rollout", "load_weights"), ("OSC409",)),
    Deletion("D1", "the data preprocessors", removed(_DATA)),
    Deletion("D1", "the chat messages", lines(_DATA, r'"prompt":')),
    Deletion("D2", "the column of ids", _column_of_ids),
    Deletion("D1", "the files that they write", lines(_DATA, r"to_parquet")),
    Deletion("W1", "the training adapter's export", lines(INIT, r"import BagelDiffusion")),
    Deletion("W1", "the rollout adapter's export", lines(INIT, r"import BagelPipelineWithLogProb")),
    Deletion("W1", "the package's __init__.py", removed(re.escape(INIT))),
    Deletion(
        "W2", "the name in the registry's imports", lines(REGISTRY + r"|verl_omni\.patch", r"^\+?    bagel_flow_grpo,")
    ),
    Deletion("W2", "the star import", lines(REGISTRY + r"|verl_omni\.patch", r"from \.bagel_flow_grpo import")),
    Deletion("W2", "the names in __all__", lines(REGISTRY + r"|verl_omni\.patch", r"bagel_flow_grpo\.__all__")),
    Deletion("W3", "the launch scripts", removed(_LAUNCH)),
    Deletion("W3", "the model's place", lines(_LAUNCH, r"actor_rollout_ref\.model\.path=")),
    Deletion("W3", "the data", lines(_LAUNCH, r"data\.train_files=")),
    Deletion("W3", "the data to validate on", lines(_LAUNCH, r"data\.val_files=")),
    Deletion("W3", "the rollout engine", lines(_LAUNCH, r"rollout\.name=vllm_omni")),
    Deletion("W3", "the rank of LoRA", lines(_LAUNCH, r"model\.lora_rank=")),
    Deletion("W3", "the layers whose LoRA is sent", lines(_LAUNCH, r"fsdp_layer_prefixes=")),
    Deletion("W3", "the weights that the engine starts with", lines(_LAUNCH, r"rollout\.load_format=")),
    Deletion("W3", "the file of the reward", lines(_LAUNCH, r"custom_reward_function\.path=")),
    Deletion("W3", "the README that the documentation links", removed(r"examples/flowgrpo_trainer/bagel/README\.md")),
    Deletion("W3", "the trainer's call", lines(_LAUNCH, r"verl_omni\.trainer")),
    Deletion("W4", "the deploy configuration", removed(r"examples/.*bagel_deploy_config\.yaml")),
    Deletion(
        "W4", "the topology", recorded(lines(r"examples/.*bagel_deploy_config\.yaml", r"^pipeline:")), ("OSC515",)
    ),
    Deletion("W4", "the option for it", lines(_LAUNCH, r"deploy_config=\$|deploy_config=\"\$")),
    Deletion("W5", "the architecture in launch scripts", lines(_LAUNCH, r"model\.architecture=")),
    Deletion("S1", "the smoke test", removed(_SMOKE)),
    Deletion("S1", "the trainer's call", lines(_SMOKE, r"verl_omni\.trainer")),
    Deletion("S1", "the rollout engine", lines(_SMOKE, r"rollout\.name=vllm_omni"), ("OSC523",)),
    Deletion("S1", "the rank of LoRA", lines(_SMOKE, r"model\.lora_rank="), ("OSC523",)),
    Deletion("S1", "the layers whose LoRA is sent", lines(_SMOKE, r"fsdp_layer_prefixes="), ("OSC507",)),
    Deletion("S1", "the weights that the engine starts with", lines(_SMOKE, r"rollout\.load_format="), ("OSC523",)),
    Deletion("S1", "the file of the reward", lines(_SMOKE, r"custom_reward_function\.path="), ("OSC523",)),
    Deletion("S1", "the dummy data", removed(_DUMMY)),
    Deletion("S1", "the architecture in the smoke test", lines(_SMOKE, r"model\.architecture=")),
    Deletion("S2", "the call of the smoke test", lines(r"tests/gpu_smoke/.*|verl_omni\.patch", r"run_flowgrpo_bagel")),
)
