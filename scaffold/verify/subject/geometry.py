"""Finds an image size and latent shape that the package's adapter and module take."""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scaffold.attributes import with_attribute
from scaffold.verify.measured import NotDrivableError
from scaffold.verify.subject.source_words import ids_beyond

ROWS, COLUMNS = 2, 3


@dataclass(frozen=True)
class Geometry:
    """One image.

    Attributes:
        height: pixels.
        width: pixels.
        shape: shape of one latent without batch, ``(tokens, channels)``, ``(channels, rows, columns)`` or
            ``(channels, frames, rows, columns)``.
    """

    height: int
    width: int
    shape: tuple[int, ...]


def image_that_runs(subject: Any, prompts: Any) -> Geometry:
    """An image that the package takes.

    Args:
        subject: the package.
        prompts: token ids to try with.

    Raises:
        NotDrivableError: none was found; the reason is that of the likeliest.
    """
    import torch

    first: str | None = None
    refused: str | None = None  # raised by the adapter: another image size may fit
    module = subject.new_module()
    images: Iterable[Geometry] = subject.images(module)
    for candidate in images:
        inputs = None
        try:
            with with_attribute(subject, "_image", candidate), torch.no_grad():
                inputs, _ = subject.inputs(module, prompts)
                shape = subject.velocity(module, inputs).shape
            if shape[1:] == candidate.shape:
                return candidate
            first = first or f"the velocity has shape {tuple(shape)} for latents {(1, *candidate.shape)}"
        except NotDrivableError:
            raise
        except Exception as error:
            if isinstance(error, IndexError) and (told := ids_beyond(module, subject.folder)):
                raise NotDrivableError(told) from error
            reason = _told(error, subject.folder)
            first, refused = (first, refused or reason) if inputs is None else (first or reason, refused)
    reason = first or refused or "no latent shape to try"
    where = f"{subject.table.place} declares what the module does not take" if subject.table.place else ""
    raise NotDrivableError(f"{where or 'the module could not be run (see forward)'}: {reason}")


def _told(error: Exception, package: Path) -> str:
    """Return an error in one line, with the innermost line of the package."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(package)]
    place = f" at {Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}{place}"


def candidates(config: Any, module: Any, spec: dict[str, Any]) -> Iterator[Geometry]:
    """Sizes to try, likeliest first: a grid of two by three latent tokens."""
    for pixels, channels in itertools.product(_pixels(config, spec), _channels(config, module)):
        yield Geometry(ROWS * pixels, COLUMNS * pixels, (ROWS * COLUMNS, channels))


def _pixels(config: Any, spec: dict[str, Any]) -> list[int]:
    """Side of the image square that one latent token may stand for."""
    sizes = [getattr(config, "pixels_per_token", None)]
    patches = [value for name, value in numbers(config).items() if "patch" in name and "size" in name]
    factors = [value for name, value in numbers(config).items() if "downsample" in name or "scale_factor" in name]
    sizes += [patch * factor for patch in patches for factor in factors]
    latents = spec.get("latents", {})
    if latents.get("patch") and latents.get("downsample"):
        sizes.append(latents["patch"] * latents["downsample"])
    sizes += [16, 8, 32, 1]
    return list(dict.fromkeys(size for size in sizes if isinstance(size, int) and size > 0))


def _channels(config: Any, module: Any) -> list[int]:
    """Channels that one latent token may have."""
    import torch

    named = [value for name, value in numbers(config).items() if "patch" in name and "dim" in name]
    patches = [value for name, value in numbers(config).items() if "patch" in name and "size" in name]
    channels = [value for name, value in numbers(config).items() if "channel" in name]
    named += [patch**2 * channel for patch in patches for channel in channels]
    # What goes in comes out: the input and the output projection share the latents' channels. They may be parts of
    # children, but of no repeated layer.
    children = [child for child in module.children() if not isinstance(child, torch.nn.ModuleList)]
    inner = [part for child in children for part in child.modules()]
    named += [*_in_and_out(children), *channels, *_in_and_out(inner)]
    return list(dict.fromkeys(value for value in named if value > 0))


def _in_and_out(parts: list[Any]) -> list[int]:
    """Widths that one linear layer takes and one gives."""
    import torch

    linear = [part for part in parts if isinstance(part, torch.nn.Linear)]
    outputs = {layer.out_features for layer in linear}
    return [layer.in_features for layer in linear if layer.in_features in outputs]


def numbers(config: Any) -> dict[str, int]:
    """Integer fields and properties of a configuration."""
    names = [name for name in dir(config) if not name.startswith("_")]
    found = {}
    for name in names:
        try:
            value = getattr(config, name)
        except Exception:
            continue
        if isinstance(value, int) and not isinstance(value, bool):
            found[name] = value
    return found
