"""``verify.toml`` beside a hand-written package: the values its source does not contain, declared by a person."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scaffold.errors import ScaffoldError
from scaffold.files.documents import MalformedError, parse_toml
from scaffold.files.reading import is_relative, read_text

FILE, TABLE = "verify.toml", "verify"
UNKNOWN = "?"
# A scheduler's timestep as a function of the noise level sigma.
TIMES: dict[str, Callable[[float], float]] = {
    "sigma": lambda sigma: sigma,
    "1000 sigma": lambda sigma: 1000.0 * sigma,
    "1 - sigma": lambda sigma: 1.0 - sigma,
}
PROMPT = "prompt"  # in a column's shape: the prompt's number of tokens


@dataclass(frozen=True)
class Declared:
    """The table ``[verify]``.

    Attributes:
        place: the file as the user would name it; empty if there is none.
        image: height and width of the tiny image, in pixels.
        latents: shape of its latents as a scheduler's step gets them, without batch.
        patch: side of the square of latents that one token of the denoiser stands for.
        time: what timesteps are of noise levels, one of `TIMES`.
        guidance: setting by which both sides guide; empty where there is no guidance.
        scale: its value in the launch script.
        data: script that makes the data set, below the tree's root; empty where there is none.
        weights: the weight file, below the checkpoint's folder.
        files: content of each JSON file that ``build_module`` reads there, with tiny sizes.
        columns: what the rollout hands to training, by name: the shape of one sample's; `PROMPT` is an item of it.
    """

    place: str = ""
    image: tuple[int, int] | None = None
    latents: tuple[int, ...] | None = None
    patch: int | None = None
    time: str | None = None
    guidance: str | None = None
    scale: float | None = None
    data: str | None = None
    weights: str | None = None
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    columns: dict[str, tuple[int | str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, values: dict[str, Any]) -> Declared:
        """The table as JSON brought it to a child process."""
        shapes = {name: tuple(values[name]) for name in ("image", "latents") if values[name] is not None}
        columns = {name: tuple(shape) for name, shape in values["columns"].items()}
        return cls(**{**values, **shapes, "columns": columns})

    @property
    def pixels_per_token(self) -> int | None:
        """Side of the image square that one token stands for; None where the table does not say."""
        if self.image is None or self.latents is None:
            return None
        if len(self.latents) > 2:
            return self.image[0] // self.latents[-2] * (self.patch or 1)
        return math.isqrt(self.image[0] * self.image[1] // self.latents[0])


def read_declared(folder: Path, root: Path) -> Declared:
    """Read the table of a package; one without a file declares nothing.

    Raises:
        ScaffoldError: the file cannot be read, or a line of it is missing, still ``?`` or no value of its kind; the
            message names file and key.
    """
    file = folder / FILE
    if not file.is_file():
        return Declared()
    place = file.relative_to(root).as_posix()
    try:
        table = parse_toml(read_text(file, inside=root)).get(TABLE)
    except UnicodeDecodeError:
        raise ScaffoldError(f"{place} is not UTF-8", hint="save it as UTF-8") from None
    except (OSError, MalformedError) as error:
        raise ScaffoldError(f"{place}: {error}") from None
    if not isinstance(table, dict):
        raise ScaffoldError(f"{place} has no table [{TABLE}]", hint=f"`omni-scaffold verify {folder} --init` prints it")
    unknown = [name for name in table if name not in _KINDS]
    if unknown:
        raise ScaffoldError(
            f"{place}: [{TABLE}] {unknown[0]} is not a key of it", hint=f"its keys are {', '.join(_KINDS)}"
        )
    found: dict[str, Any] = {}
    for name, (kind, told) in _KINDS.items():
        if name not in table or _has_question(table[name]):
            state = "is missing" if name not in table else f"is still {UNKNOWN!r}"
            raise ScaffoldError(f"{place}: [{TABLE}] {name} {state}: {told}")
        try:
            found[name] = kind(table[name])
        except (TypeError, ValueError):
            raise ScaffoldError(f"{place}: [{TABLE}] {name} must be: {told}") from None
    return Declared(place, **found)


def _has_question(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(_has_question, value.values() if isinstance(value, dict) else value))
    return bool(value == UNKNOWN)


def _number(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise ValueError
    return value


def _shape(value: Any) -> tuple[int, ...]:
    found = tuple(_number(item) for item in value)
    if isinstance(value, str) or not 2 <= len(found) <= 5:
        raise ValueError
    return found


def _size(value: Any) -> tuple[int, int]:
    height, width = (_number(item) for item in value)
    return height, width


def _time(value: Any) -> str:
    if value not in TIMES:
        raise ValueError
    return str(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _weights(value: Any) -> str:
    if _text(value) and not is_relative(value):
        raise ValueError
    return str(value)


def _scale(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    return float(value)


def _files(value: Any) -> dict[str, dict[str, Any]]:
    found = dict(value)
    if not all(name.endswith(".json") and is_relative(name) for name in found):
        raise ValueError
    return {name: dict(content) for name, content in found.items()}


def _columns(value: Any) -> dict[str, tuple[int | str, ...]]:
    return {
        name: tuple(item if item == PROMPT else _number(item) for item in shape) for name, shape in dict(value).items()
    }


_KINDS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "image": (_size, "height and width of a tiny image in pixels, such as [32, 48]"),
    "latents": (_shape, "shape of its latents as the scheduler's step gets them, without batch, such as [16, 4, 6]"),
    "patch": (_number, "side of the square of latents that one token of the denoiser stands for, such as 2"),
    "time": (
        _time,
        f"timestep of a noise level: {', '.join(map(repr, TIMES))}; set_timesteps of VeRL-Omni makes '1000 sigma'",
    ),
    "guidance": (_text, "setting of actor_rollout_ref.rollout.pipeline by which both sides guide, '' without guidance"),
    "scale": (_scale, "number: its value in the launch script, 1.0 without guidance"),
    "data": (_text, "path of the script that makes the data set, from the root of the tree, '' without one"),
    "weights": (
        _weights,
        "name of the weight file below a checkpoint's folder, such as 'transformer/model.safetensors'",
    ),
    "files": (_files, "table of JSON files that build_module reads below a checkpoint's folder, with tiny sizes"),
    "columns": (
        _columns,
        "table of what the rollout hands to training: one sample's shape, 'prompt' its tokens",
    ),
}


def told_of(name: str) -> str:
    """Return what a key must hold."""
    return _KINDS[name][1]
