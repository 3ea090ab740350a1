"""Names and defaults of a denoiser's settings: what its constructor takes, and what its builder asks a file for."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import json
import types
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch

Repair = Callable[[Exception], bool]


class Asked(dict[str, Any]):
    """A configuration that notes which of its settings are asked for, and with which default."""

    def __init__(self, content: dict[str, Any], defaults: dict[str, Any]) -> None:
        super().__init__(content)
        self.defaults = defaults

    def get(self, key: str, default: Any = None) -> Any:
        self.defaults.setdefault(key, default)
        return super().get(key, default)

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

    @functools.wraps(original)  # a library may look at the signature to choose what it passes
    def seen(self: Any, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        for name, value in list(bound.arguments.items())[1:]:
            fields = dataclasses.fields(value) if dataclasses.is_dataclass(value) else ()
            found.update({name: value, **{field.name: getattr(value, field.name) for field in fields}})
        original(self, *args, **kwargs)

    with mock.patch.object(entry, "__init__", seen):
        yield found


def asked_by(build: Callable[[Any], Any], config: Callable[[], Any], entry: type, repair: Repair) -> dict[str, Any]:
    """Build a denoiser with parameters that have no memory, of an empty configuration.

    Args:
        build: the package's ``build_denoiser``.
        config: makes what it takes.
        entry: the denoiser's class.
        repair: changes the checkpoint for an error and says whether it did; then the builder runs again.

    Returns:
        The settings that were asked for, with their defaults, and the fields of dataclasses that the class took.
    """
    defaults: dict[str, Any] = {}

    def noted(value: Any) -> Any:
        return Asked(value, defaults) if isinstance(value, dict) else value

    stand_in = types.SimpleNamespace(**{**vars(json), "load": lambda *a, **k: noted(json.load(*a, **k))})
    with (
        mock.patch.dict(build.__globals__, {"json": stand_in} if "json" in build.__globals__ else {}),
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
                    break  # building in earnest says what is wrong
    taken = [value for value in seen.values() if dataclasses.is_dataclass(value)]
    fields = {field.name: getattr(value, field.name) for value in taken for field in dataclasses.fields(value)}
    return {**defaults, **fields}
