"""Finds names and defaults of a denoiser's settings: its constructor's arguments, and keys its builder reads."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import json
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from scaffold.attributes import with_attribute, with_entries
from scaffold.verify.rollout.engine_side.tiny.shrink import by_name

Repair = Callable[[Exception], bool]


class Asked(dict[str, Any]):
    """A configuration that records which settings are read, and with which default.

    Args:
        content: what it holds.
        defaults: of settings; filled here.
        sections: names of settings that are tables, empty by default; filled here.
    """

    def __init__(self, content: dict[str, Any], defaults: dict[str, Any], sections: set[str] | None) -> None:
        super().__init__(content)
        self.defaults, self.sections = defaults, sections

    def get(self, key: str, default: Any = None) -> Any:
        if default == {} and self.sections is not None:
            self.sections.add(key)
        else:
            self.defaults.setdefault(key, default)
        return super().get(key, default)

    def __missing__(self, key: str) -> Any:
        """Return a small value for a setting without a default whose name tells its meaning."""
        guess = by_name(key)
        if guess is None:
            raise KeyError(key)
        return self.defaults.setdefault(key, guess)

    def pop(self, key: str, *default: Any) -> Any:
        if default:
            self.defaults.setdefault(key, default[0])
        return super().pop(key, *default)


def taken_by(entry: type) -> dict[str, Any]:
    """Defaults of a constructor's arguments."""
    parameters = list(inspect.signature(entry.__init__).parameters.items())[1:]  # type: ignore[misc]
    return {name: parameter.default for name, parameter in parameters if parameter.default is not parameter.empty}


@contextlib.contextmanager
def seen_by(entry: type) -> Iterator[dict[str, Any]]:
    """Inside the block, what a class is built of: its arguments, and the fields of those that are dataclasses."""
    original = entry.__init__  # type: ignore[misc]
    signature = inspect.signature(original)
    found: dict[str, Any] = {}

    @functools.wraps(original)  # a library may inspect the signature to choose its arguments
    def seen(self: Any, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        for name, value in list(bound.arguments.items())[1:]:
            fields = dataclasses.fields(value) if dataclasses.is_dataclass(value) else ()
            found.update({name: value, **{field.name: getattr(value, field.name) for field in fields}})
        original(self, *args, **kwargs)

    with with_attribute(entry, "__init__", seen):
        yield found


@contextlib.contextmanager
def noting(
    names: dict[str, Any], defaults: dict[str, Any], sections: set[str] | None
) -> Iterator[Callable[[Any], Any]]:
    """Inside the block, JSON that a module reads notes what it is asked for.

    Args:
        names: the module's globals.
        defaults: of settings that are asked for; filled here.
        sections: names of those that are tables; filled here.

    Yields:
        What makes such a configuration of a table.
    """

    def noted(value: Any) -> Any:
        return Asked(value, defaults, sections) if isinstance(value, dict) else value

    def reading(read: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: noted(read(*args, **kwargs))

    stand_in = types.SimpleNamespace(**{**vars(json), "load": reading(json.load), "loads": reading(json.loads)})
    with with_entries(names, {"json": stand_in} if "json" in names else {}):
        yield noted


def asked_by(
    build: Callable[[Any], Any],
    config: Callable[[], Any],
    entry: type,
    repair: Repair,
    sections: set[str] | None = None,
) -> dict[str, Any]:
    """Build a denoiser with parameters that have no memory, of an empty configuration.

    Args:
        build: the package's ``build_denoiser``.
        config: makes what it takes.
        entry: the denoiser's class.
        repair: changes the checkpoint for an error and says whether it did; then the builder runs again.
        sections: names of tables that were asked for; filled here.

    Returns:
        The settings that were asked for, with their defaults, and the fields of dataclasses that the class took; what
        the class itself took where ``sections`` has any.
    """
    defaults: dict[str, Any] = {}
    with (
        noting(build.__globals__, defaults, sections) as noted,
        seen_by(entry) as seen,
        torch.device("meta"),
    ):
        for _ in range(2):
            made = config()
            made.tf_model_config.params = noted(made.tf_model_config.params)
            try:
                build(made)
                break
            except Exception as error:
                if not repair(error):
                    break  # the real build reports the error
    taken = [value for value in seen.values() if dataclasses.is_dataclass(value)]
    fields = {field.name: getattr(value, field.name) for value in taken for field in dataclasses.fields(value)}
    return {**defaults, **(seen if sections else {}), **fields}
