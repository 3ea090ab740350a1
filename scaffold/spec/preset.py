"""Presets: what no source can tell about a model, such as the guidance of its recipe or the released sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from scaffold.reading import read_text
from scaffold.resources import presets_root


@dataclass(frozen=True)
class Preset:
    """Values by section; ``pipelines`` are the registry keys it is meant for, ``manifest`` its packaged headers."""

    name: str
    pipelines: tuple[str, ...]
    manifest: str | None
    configs: Mapping[str, Any]
    sections: Mapping[str, Mapping[str, Any]]

    def value(self, section: str, key: str) -> Any:
        """Return a value; None where the preset is silent."""
        return self.sections.get(section, {}).get(key)

    @property
    def manifest_path(self) -> Path | None:
        """The packaged manifest of the released checkpoint's names and shapes."""
        return presets_root() / "manifests" / self.manifest if self.manifest else None


EMPTY = Preset("none", (), None, {}, {})


@cache
def presets() -> tuple[Preset, ...]:
    """Return all presets, by name."""
    return tuple(_read(path) for path in sorted(presets_root().glob("*.toml")))


def find_preset(model: str, registry_key: str | None) -> Preset:
    """Return the preset of that name, else the one meant for the pipeline, else one without values."""
    for preset in presets():
        if preset.name == model:
            return preset
    for preset in presets():
        if registry_key in preset.pipelines:
            return preset
    return EMPTY


def _read(path: Path) -> Preset:
    import tomli

    data = tomli.loads(read_text(path))
    return Preset(
        name=path.stem,
        pipelines=tuple(data.pop("pipelines")),
        manifest=data.pop("manifest", None),
        configs=data.pop("configs", {}),
        sections=data,
    )
