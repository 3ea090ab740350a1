"""What a spec must be before it is rendered, whoever wrote it: an edited value is never rendered as something else."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any

from scaffold.errors import ScaffoldError
from scaffold.files.reading import read_text
from scaffold.files.resources import runtime_root, templates_root
from scaffold.spec.defaults import DEFAULTS
from scaffold.spec.model import IntegrationSpec
from scaffold.spec.ranges import require_ranges
from scaffold.spec.supported import STEP_ARGUMENTS

# Values that templates render, by the spec's key. None among them: the value may be unknown.
ALLOWED: Mapping[str, Collection[Any]] = {
    "target.rollout_result": ("rollout_output", "custom_output"),
    "upstream.sample_rank": (2, 3),
    "upstream.task": (None, "edit"),
    "upstream.steps": ("n", "n-1", None),
    "schedule.steps": ("n", "n-1", None),
    "schedule.request_offset": (-1, 0, 1, None),
    "schedule.direction": ("descending", "ascending"),
    "cfg.formula": ("u+s(c-u)",),
    "cfg.interval_rule": ("lo < sigma <= hi", "lo <= sigma <= hi", None),
    "prompt.negative": ("empty", "text"),
    "architecture.mlp": ("swiglu", "gelu", "gelu_tanh"),
    "architecture.text_attention": ("causal", "full"),
    "architecture.timestep_order": (["cos", "sin"], ["sin", "cos"]),
    "lora.sync": ("fold", "adapter", "merge", "none"),
    "grade.value": ("complete", "unproven", "partial", None),
}
_TABLES = re.compile(r"^def ([a-z]+)_tables\(", re.MULTILINE)
_LAYOUTS = re.compile(r"^class (\w+)Layout\(Layout\)", re.MULTILINE)
_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")
POSITIVE = (
    "latents.channels",
    "latents.patch",
    "latents.downsample",
    "architecture.hidden_size",
    "architecture.intermediate_size",
    "architecture.num_hidden_layers",
    "architecture.num_attention_heads",
    "architecture.num_key_value_heads",
    "architecture.vocab_size",
    "architecture.timestep_frequencies",
)
NUMBERS = (
    "architecture.rms_norm_eps",
    "architecture.rope_theta",
    "architecture.timestep_max_period",
    "architecture.timestep_scale",
)
FLAGS = ("architecture.qk_norm", "architecture.qkv_bias", "architecture.output_bias", "architecture.mlp_bias")
IDENTIFIERS = ("prompt.column", "prompt.key", "prompt.negative_key", "upstream.class", "upstream.scheduler_attribute")
_DATE = re.compile(r"\d{2}/\d{2}/\d{4}", re.ASCII)


def is_date(value: object) -> bool:
    """Whether a value is a day of the calendar as documentation pages write it, ``MM/DD/YYYY``."""
    if not isinstance(value, str) or not _DATE.fullmatch(value):
        return False
    try:
        datetime.strptime(value, "%m/%d/%Y")
    except ValueError:
        return False
    return True


def validate(spec: IntegrationSpec, source: str = "the spec") -> None:
    """Check the values that decide what is rendered.

    Args:
        spec: what is checked.
        source: what errors call it.

    Raises:
        ScaffoldError: names the key, its value and what it may be.
    """

    def require(key: str, fits: Callable[[Any], bool], wanted: str) -> None:
        value = spec.value(key)
        if not fits(value):
            raise ScaffoldError(f"{source}: {key} is {value!r}", hint=f"it must be {wanted}")

    for key, values in ALLOWED.items():
        require(key, lambda value: value in values, "one of " + ", ".join(map(repr, values)))  # noqa: B023
    for key in POSITIVE:
        require(key, lambda value: _is_int(value) and value > 0, "a positive integer")
    for key in NUMBERS:
        require(key, _is_positive, "a positive number")
    for key in FLAGS:
        require(key, lambda value: isinstance(value, bool), "true or false")
    optional = {"prompt.negative_key"} if spec.value("prompt.negative") == "text" else set()
    for key in IDENTIFIERS:
        if key not in optional or spec.value(key) is not None:
            require(key, lambda value: isinstance(value, str) and value.isidentifier(), "an identifier")
    require("docs.last_updated", is_date, "a date MM/DD/YYYY")
    arguments = spec.value("upstream.step_arguments")
    known = isinstance(arguments, list) and {"model_output", "sample"} <= set(arguments) <= STEP_ARGUMENTS
    require("upstream.step_arguments", lambda _: known, "a list of " + ", ".join(sorted(STEP_ARGUMENTS)))
    sequence = spec.value("architecture.sequence")
    parts = set(spec.sections.get("tokens", {})) | {"text", "latents"}
    ordered = isinstance(sequence, list) and {"text", "latents"} <= set(sequence) <= parts and sequence[0] == "text"
    require(
        "architecture.sequence", lambda _: ordered, "'text' first, then 'latents' and names of [tokens] around them"
    )
    _validate_references(spec, require)
    table = f"{spec.value('architecture.position_embedding')}.pos_embed"
    require(
        "checkpoint.computed", lambda value: value in (None, [], [table]), f"[{table!r}], all that the module computes"
    )
    if spec.value("architecture.position_embedding") is not None:
        require("architecture.position_table_side", lambda value: _is_int(value) and value > 0, "a positive integer")
    for key, names in _blocks().items():
        default = DEFAULTS["architecture"].get(key)
        require(f"architecture.{key}", lambda value: (value or default) in names, "one of " + ", ".join(names))  # noqa: B023
    heads, kv_heads = spec.value("architecture.num_attention_heads"), spec.value("architecture.num_key_value_heads")
    if all(entry.get("field") != "head_dim" for entry in spec.value("checkpoint.text_config") or ()):
        require("architecture.hidden_size", lambda value: value % heads == 0, f"a multiple of the {heads} heads")
    require(
        "architecture.num_attention_heads", lambda value: value % kv_heads == 0, "a multiple of the key-value heads"
    )
    require_ranges(spec, source)


def _validate_references(spec: IntegrationSpec, require: Callable[[str, Callable[[Any], bool], str], None]) -> None:
    """A package for edits, and no other, has the place at which the rollout sees a reference image."""
    if spec.value("upstream.task") is None:
        require("architecture.references", lambda value: value is None, "left out: upstream.task is not an edit")
        return
    keys = {"decoder", "sequence", "positions", "cached"}
    require(
        "architecture.references",
        lambda value: isinstance(value, Mapping)
        and set(value) == keys
        and all(isinstance(v, str) and all(map(str.isidentifier, v.split("."))) for v in value.values()),
        f"a table of names: {', '.join(sorted(keys))}",
    )
    require(
        "architecture.image_position", lambda value: value == "text_length", "'text_length' where images are edited"
    )
    require("architecture.text_attention", lambda value: value == "causal", "'causal' where images are edited")
    require("media.sends", lambda value: value == ["image"], "['image'] where images are edited")


def _blocks() -> dict[str, list[str]]:
    """Kinds of the blocks that are chosen by a key of ``[architecture]``.

    A kind is a file of ``templates/blocks``, a function or a class of the runtime's ``layouts``.
    """
    names = {path.name for path in (templates_root() / "blocks").glob("*.py.jinja")}
    files = sorted(name.removesuffix(".py.jinja") for name in names)
    found = {key: _after(files, f"{key}_") for key in ("latent_input", "latent_output")}
    found["rotary"] = _TABLES.findall(read_text(runtime_root() / "layouts.py"))
    layouts = _LAYOUTS.findall(read_text(runtime_root() / "layouts.py"))
    return {**found, "image_position": [_CAPITAL.sub("_", name).lower() for name in layouts]}


def _after(files: list[str], prefix: str) -> list[str]:
    return [name.removeprefix(prefix) for name in files if name.startswith(prefix)]


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e30


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
