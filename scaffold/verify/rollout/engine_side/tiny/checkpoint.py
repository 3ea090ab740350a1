"""Writes the tiny checkpoint of a package with a ported denoiser while the engine loads it for the first time."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from scaffold.verify.rollout.engine_side.sources import Adapters
from scaffold.verify.rollout.engine_side.tiny.components import Components, hold_places
from scaffold.verify.rollout.engine_side.tiny.denoiser import PortedModule

_CHANNELS = ("out_channels", "in_channels", "out_dim", "in_dim", "latent_channels", "latent_dim")
_SUBFOLDER = re.compile(r"""subfolder=["'](\w+)["']""")


@dataclass
class Growing:
    """A checkpoint that is being made.

    Attributes:
        folder: where it lies; what is in it stays.
        module: the package's denoiser.
        components: everything else.
        given: settings of the denoiser from ``scaffold.toml``.
        dtype: of all weights: a library may load them as they were saved.
    """

    folder: Path
    module: PortedModule
    components: Components
    given: dict[str, Any]
    dtype: torch.dtype

    def write_denoiser(self) -> None:
        """Write the denoiser's configuration and weights; its channels are those of the latents."""
        settings = self.module.write(self.folder, self.given, self.dtype)
        named = (settings.get(name) for name in _CHANNELS)
        self.components.channels = next((value for value in named if isinstance(value, int)), None)

    def fit(self, error: Exception) -> bool:
        """Change what failed, where the error says what that is; returns whether anything was changed."""
        if hold_places(self.folder, error) or self.components.fit(error):
            return True
        if self.module.fit(error, self.components.channels):
            self.write_denoiser()
            return True
        return False


@contextlib.contextmanager
def growing(
    folder: Path, package: str, adapters: Adapters, facts: dict[str, Any], dtype: torch.dtype
) -> Iterator[Growing]:
    """Write the denoiser; inside the block, whatever else the pipeline loads is written when it is asked for.

    Args:
        folder: the checkpoint.
        package: dotted name of the package.
        adapters: its adapters.
        facts: of the ported denoiser, see ``ported_facts``.
        dtype: of all weights.
    """
    pipeline: Any = adapters.upstream
    source = inspect.getsource(importlib.import_module(pipeline.__module__))
    folder.mkdir(parents=True, exist_ok=True)
    for name in _SUBFOLDER.findall(inspect.getsource(pipeline)):
        (folder / name).mkdir(exist_ok=True)  # a pipeline may tell a layout by the folders that are there
    given = facts["given"]
    components = Components(folder, [source], given["components"], dtype)
    made = Growing(folder, PortedModule(package, facts), components, given["denoiser"], dtype)
    made.write_denoiser()
    with components.answering():
        yield made
