"""What a training module is built from, and the sizes that make it tiny."""

from __future__ import annotations

import dataclasses
import itertools
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from scaffold.attributes import with_attribute
from scaffold.verify.measured import NotDrivableError
from scaffold.verify.subject.checkpoint import write_documents, write_tensors
from scaffold.verify.subject.roles import MAX_PARAMETERS, VOCABULARY, Sizes, count, on_meta, proposals, refuse_large
from scaffold.verify.subject.source_words import weight_files

# A VAE of four levels, eight pixels to a latent one, and a schedule that does not depend on the image's size.
FILES: dict[str, dict[str, Any]] = {
    "vae/config.json": {
        "block_out_channels": [8, 8, 8, 8],
        "latent_channels": 16,
        "scaling_factor": 1.0,
        "shift_factor": 0.0,
    },
    "scheduler/scheduler_config.json": {
        "_class_name": "FlowMatchEulerDiscreteScheduler",
        "num_train_timesteps": 1000,
        "shift": 3.0,
        "use_dynamic_shifting": False,
    },
}


# Tuples of sizes that share out another size, such as the channels that each rotary axis has of a head.


@dataclass(frozen=True)
class Share:
    """A tuple whose sum is a size, or one size divided by another.

    Attributes:
        parts: the tuple.
        whole: name of the size.
        divisor: name of what it is divided by; None where the sum is the size itself.
    """

    parts: tuple[int, ...]
    whole: str
    divisor: str | None

    def among(self, values: Mapping[str, int]) -> tuple[int, ...]:
        """The tuple for other sizes: in proportion, even where all its parts are, none of them zero."""
        total = values[self.whole] // (1 if self.divisor is None else max(1, values[self.divisor]))
        unit = 2 if all(part % 2 == 0 for part in self.parts) else 1
        found = [max(unit, total * part // sum(self.parts) // unit * unit) for part in self.parts]
        found[0] += total - sum(found)
        return tuple(found) if found[0] > 0 else self.parts


def share_of(parts: tuple[int, ...], values: Mapping[str, int]) -> Share | None:
    """What a tuple of sizes shares out; None where its sum is nothing that the sizes give.

    Args:
        parts: the tuple as it is.
        values: sizes by name, as they are.
    """
    total = sum(parts)
    for whole, divisor in itertools.permutations(values, 2):
        if values[divisor] > 1 and values[whole] == total * values[divisor]:
            return Share(parts, whole, divisor)
    return next((Share(parts, name, None) for name, value in values.items() if value == total), None)


GUESS = 32  # stands for a size without a default, until its role is known
_CALLED_WRONG = re.compile(r"TypeError: [\w.]*forward\(\) (got an unexpected keyword|missing \d+ required)")
CHECKPOINT = "--checkpoint DIR with a small configuration sets it"


class ConfigClass:
    """A dataclass of sizes that the constructor takes.

    Args:
        subject: the package.

    Raises:
        NotDrivableError: a field without a default is none that a number could stand for.
    """

    def __init__(self, subject: Any) -> None:
        self.kind = subject.config_class
        given = subject.job["checkpoint"]
        read = None if given is None else self.kind.from_model_path(given)
        self.fixed: dict[str, Any] = {}
        self.values: dict[str, int] = {}
        self.guessed: list[str] = []
        for field in dataclasses.fields(self.kind):
            if not field.init:
                continue
            value = getattr(read, field.name) if read is not None else _default(field)
            if value is dataclasses.MISSING:
                self.guessed.append(field.name)
                value = {"int": GUESS, "float": 1.0, "bool": False}.get(str(field.type).split(" ")[0], value)
            if value is dataclasses.MISSING:
                told = f"{self.kind.__name__}.{field.name} has no default; {CHECKPOINT}"
                raise NotDrivableError(told)
            if value == () and str(field.type).startswith("tuple[int"):
                value = tuple(range(VOCABULARY // 2, VOCABULARY // 2 + 4))  # what a checkpoint fills in
            elif isinstance(value, tuple) and value and all(type(i) is int and i >= VOCABULARY for i in value):
                # Each item by its own name: ids of a fixed text must lie in the vocabulary.
                self.values |= {f"{field.name}[{i}]": item for i, item in enumerate(value)}
            (self.values if type(value) is int else self.fixed)[field.name] = value
        small = {
            name: value
            for name, value in self.fixed.items()
            if isinstance(value, tuple) and value and all(type(i) is int and 1 < i < VOCABULARY for i in value)
        }
        shares = {name: share_of(value, self.values) for name, value in small.items() if len(value) > 1}
        self.shares = {name: share for name, share in shares.items() if share is not None}

    def arguments(self, values: Mapping[str, int]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The configuration as the only argument."""
        tuples = {
            name: tuple(values[f"{name}[{i}]"] for i in range(len(value)))
            for name, value in self.fixed.items()
            if isinstance(value, tuple) and f"{name}[0]" in values
        }
        tuples |= {name: share.among(values) for name, share in self.shares.items()}
        plain = {name: value for name, value in values.items() if not name.endswith("]")}
        return (self.kind(**{**self.fixed, **tuples, **plain}),), {}


class _Met(BaseException):
    """The constructor was reached; no handler of the package's is meant."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__()
        self.arguments = args, kwargs


class DeclaredFiles:
    """The files of a tiny configuration that the package's table declares.

    Args:
        subject: the package.
    """

    def __init__(self, subject: Any) -> None:
        self._subject = subject
        self.values: dict[str, int] = {}
        self.guessed: list[str] = []

    def arguments(self, values: Mapping[str, int]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What ``build_module`` gives the module's constructor where the files lie in a checkpoint without weights.

        Raises:
            NotDrivableError: it raises before, or never gets there; the message names the table.
        """
        subject, kind = self._subject, self._subject.module_class
        place = f"{subject.table.place}: [verify.files]"

        def met(_: Any, *args: Any, **kwargs: Any) -> None:
            raise _Met(args, kwargs)

        with tempfile.TemporaryDirectory() as name, with_attribute(kind, "__init__", met):
            folder = Path(name)
            write_documents(folder, {**FILES, **subject.table.files})
            for file in weight_files(subject):
                write_tensors(folder, file, {})
            try:
                subject.training.build_module(subject.settings_without_image(local_path=name), torch.float32)
            except _Met as met_with:
                return met_with.arguments
            except Exception as error:
                told = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
                raise NotDrivableError(f"{place}: build_module raises {told}") from error
        raise NotDrivableError(f"{place}: build_module ends without having built {kind.__name__}")


Blueprint = ConfigClass | DeclaredFiles


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def blueprint_of(subject: Any) -> Blueprint:
    """The declared files, else the configuration's class where it says how it is read.

    Raises:
        NotDrivableError: there is neither.
    """
    if subject.table.files:
        return DeclaredFiles(subject)
    if not hasattr(subject.config_class, "from_model_path"):
        raise NotDrivableError(f"{subject.config_class.__name__} has no from_model_path, which tells sizes")
    return ConfigClass(subject)


def chosen(subject: Any) -> dict[str, int]:
    """Small sizes with which the module is built and runs.

    Raises:
        NotDrivableError: there are none; the reason is that of the likeliest, or how large the smallest is.
    """
    blueprint = subject.blueprint
    if isinstance(blueprint, DeclaredFiles):
        args, kwargs = blueprint.arguments({})
        total = count(on_meta(partial(subject.module_class, *args, **kwargs)))
        if total > MAX_PARAMETERS:
            place = f"{subject.table.place}: [verify.files]"
            raise NotDrivableError(f"{place} makes {total:,} parameters, at most {MAX_PARAMETERS:,} are built")
        return {}

    def build(values: dict[str, int]) -> Any:
        args, kwargs = blueprint.arguments(values)
        return subject.module_class(*args, **kwargs)

    sizes = Sizes(blueprint.values, build, blueprint.guessed)
    first: str | None = None
    smallest = None
    for values in _candidates(subject, sizes):
        tried = Sizes(values, build)
        try:
            found = tried.shapes()
        except Exception as error:
            told = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            first = first or f"{subject.module_class.__name__}: {told}"
            continue
        if smallest is None or count(found) < count(smallest[0]):
            smallest = found, tried
        if count(found) > MAX_PARAMETERS or any(0 in shape for shape in found.values()):
            continue
        reason = _runs(subject, values)
        # A call with other arguments than forward takes is no matter of sizes; the contracts say it.
        if reason is None or _CALLED_WRONG.search(reason):
            return values
        first = first or reason
    if smallest is not None:
        refuse_large(*smallest, CHECKPOINT)
    raise NotDrivableError(first or "the module could not be built")


def _candidates(subject: Any, sizes: Sizes) -> Iterator[dict[str, int]]:
    """Sizes to try: the checkpoint's own if they are small, then proposals, each as it is and with ids in range."""
    try:
        small = count(sizes.shapes()) <= MAX_PARAMETERS
    except Exception as error:
        told = f"{subject.module_class.__name__}(…) raises {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        raise NotDrivableError(f"{told}, on the meta device") from error
    if small and subject.job["checkpoint"] is not None:
        yield dict(sizes.values)
    seen = []
    for values in proposals(sizes):
        for candidate in (_ids_in_range(sizes.values, values), values):
            if candidate not in seen:
                seen.append(candidate)
                yield candidate


def _ids_in_range(before: Mapping[str, int], values: Mapping[str, int]) -> dict[str, int]:
    """Numbers that showed in no shape and lay inside of a table that is smaller now: ids of tokens, each another."""
    rows = max((before[name] for name in values if values[name] == VOCABULARY != before[name]), default=0)
    found, free = dict(values), VOCABULARY - 1
    for name, value in values.items():
        if before[name] == value and VOCABULARY <= value < rows:
            found[name] = free
            free -= 1
    return found


def _runs(subject: Any, values: dict[str, int]) -> str | None:
    """Why a model of such sizes does not run; None where it does."""
    trial = type(subject)({**subject.job, "sizes": {"values": values}}, subject.package)
    trial.__dict__["blueprint"] = subject.blueprint
    try:
        trial.geometry  # noqa: B018
    except NotDrivableError as reason:
        return str(reason)
    return None


def seeded(module: Any) -> Any:
    """The module in float32 and eval mode with random weights, drawn from the generator as it stands.

    Vectors, which start as ones or zeros, are drawn too, so that exchanged ones are detected. What the package marks as
    not trainable, such as position tables, is kept; tables that the constructor leaves at zero are filled.
    """
    module = module.float()
    with torch.no_grad():
        state = module.state_dict()
        tables = [value for name, value in module.named_buffers() if name in state and value.is_floating_point()]
        for parameter in [*module.parameters(), *tables]:
            if not parameter.requires_grad and (parameter.ndim < 2 or parameter.any()):
                continue
            noise = torch.randn(parameter.shape)
            if parameter.ndim < 2:
                parameter.add_(0.1 * noise)
            else:
                parameter.copy_(noise * parameter.shape[-1] ** -0.5)
    return module.eval()
