"""Presets: what no source can tell about a model, such as the guidance of its recipe or the released sizes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaffold.checkpoint import read_manifest
from scaffold.errors import ScaffoldError
from scaffold.files.documents import MalformedError, parse_toml
from scaffold.files.reading import read_text
from scaffold.files.resources import presets_root
from scaffold.spec.kinds import KINDS, require_kinds
from scaffold.team import FILE, PACKAGED, Team, TeamFile

if TYPE_CHECKING:
    from scaffold.checkpoint import CheckpointHeaders

MANIFESTS = "manifests"
# What a preset may say, by section, with the kind of the value; None for one that is judged where it is used. A table
# with a kind instead of keys takes any key.
KEYS: Mapping[str, Mapping[str, str | None] | str] = {
    "names": {"display": "text", "repository": "text", "folder": "text"},
    "schedule": {"steps": "text", "shift": "a number"},
    "cfg": {"defaults": "a table"},
    "upstream": {"replaced": "a list of tables"},
    "prompt": {
        "column": "text",
        "strip": "true or false",
        "chat_user": "text",
        "chat_end": "text",
        "chat_reply": "text",
        "request_prefix": "text",
        "request_suffix": "text",
    },
    "tokens": "a table",
    "architecture": {
        "input_projection": "text",
        "output_projection": "text",
        "text_attention": "text",
        "image_position": "text",
        "sequence": "a list of text",
        "timestep_max_period": "a number",
        "timestep_scale": "a number",
        "position_embedding": "text",
        "rotary": "text",
        "rotary_float32": "true or false",
        "norm_parts": "a list of text",
        "rope_sections": "a list of whole numbers",
        "rope_theta_grid": "a number",
        "patch_rope_theta": "a number",
        "noise_rule": "a table",
    },
    "checkpoint": {
        "text_section": "text",
        "root_config": "a table",
        "text_fields": "a table",
        "divided_by": "a table",
        "fixed_config": "a list of tables",
        "drop_reasons": "a table",
        "edit_drop_reasons": "a table",
        "index": "text",
    },
    "inputs": {
        "left_out": "a list of text",
        "fixed": "a table",
        "renamed": "a table",
        "sample_dims": "a table",
        "alone": "true or false",
        "clears": "text",
    },
    "media": {"required": "a list of text"},
    "lora": {"rank": "a whole number", "alpha": "a whole number", "targets": "a list of text"},
    "recipe": {},
    "deploy": {
        "pipeline": "text",
        "engine": "a table",
        "stage": "a table",
        "sampling": "a table",
        "additional_config": "a table",
        "grid": "a table",
    },
    "tiny": {
        "folder": "text",
        "image_size": "a whole number",
        "max_prompt_length": "a whole number",
        "vocab_size": "a whole number",
        "index": "text",
        "token_ids": "a table",
        "special_tokens": "a list of text",
        "roles": "a table",
        "chat_template": "a list of text",
        "configs": "a table",
        "modules": "a list of tables",
        "tensors": "a list of tables",
    },
    "docs": {"memory": "text", "step": "text"},
    "train": {"gain": "a number"},
    "verify": {
        **dict.fromkeys(("denoiser", "components", "request", "files", "stages"), "a table"),
        **dict.fromkeys(("tokens", "whole"), "a list of text"),
        "area": "text",
    },
}


class PresetError(ScaffoldError):
    """A preset of a team says what cannot be used."""


@dataclass(frozen=True)
class Preset:
    """Values by section; ``pipelines`` are the registry keys it is meant for, ``manifest`` its packaged headers.

    ``file`` is that of a team's preset, None for a packaged one.
    """

    name: str
    pipelines: tuple[str, ...]
    manifest: str | None
    configs: Mapping[str, Any]
    sections: Mapping[str, Mapping[str, Any]]
    file: TeamFile | None = field(default=None, compare=False)

    def value(self, section: str, key: str) -> Any:
        """Return a value; None where the preset is silent."""
        return self.sections.get(section, {}).get(key)

    def headers(self) -> CheckpointHeaders | None:
        """Read the manifest of the released checkpoint's names and shapes: beside a team's preset, else packaged.

        Raises:
            ScaffoldError: it is named, and cannot be read or is none.
        """
        if not self.manifest:
            return None
        if self.file is not None and os.path.lexists(own := self.file.path.parent / MANIFESTS / self.manifest):
            return read_manifest(own, inside=self.file.inside)
        return read_manifest(presets_root() / MANIFESTS / self.manifest)

    @property
    def record(self) -> dict[str, str]:
        """What the lock keeps of a team's preset; nothing of a packaged one."""
        return {} if self.file is None else {f"presets/{self.file.name}": self.file.record}


EMPTY = Preset("none", (), None, {}, {})


@cache
def presets() -> tuple[Preset, ...]:
    """Return all packaged presets, by name."""
    return tuple(_read(path.stem, read_text(path), str(path)) for path in sorted(presets_root().glob("*.toml")))


def layers_of(team: Team) -> tuple[tuple[Preset, ...], ...]:
    """Return the presets that count, the nearest layer first; one that a nearer file overrides is left out.

    Raises:
        ScaffoldError: a preset of the team is none.
    """
    own = tuple(
        tuple(_read(Path(file.name).stem, file.text, file.shown, file) for file in files) for files in team.presets
    )
    names = {preset.name for layer in own for preset in layer}
    return (*own, tuple(preset for preset in presets() if preset.name not in names))


def find_preset(model: str, registry_key: str | None, team: Team = PACKAGED) -> Preset:
    """Return the preset that counts: the one named by ``--preset``, else of the nearest layer the one of that name,
    else the one meant for the pipeline; without any, one without values. Of the packaged ones that for the pipeline
    comes first: the name of a package may be that of another model's preset.

    Raises:
        ScaffoldError: a preset of the team is none.
    """
    for layer in layers_of(team):
        named = [p for p in layer if p.name == model or (p.file is not None and p.file.where == FILE)]
        meant = [p for p in layer if registry_key in p.pipelines]
        packaged = all(preset.file is None for preset in layer)
        both = [preset for preset in named if preset in meant]
        for preset in (*both, *meant, *named) if packaged else (*named, *meant):
            return preset
    return EMPTY


@contextmanager
def reading_preset(preset: Preset, section: str) -> Iterator[None]:
    """Values of a team's preset that a section cannot use are the preset's fault, not the tool's.

    Raises:
        PresetError: names the preset and the section.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        if preset.file is None:
            raise
        said = " ".join(str(error).split())[:120]
        hint = "compare it with a packaged preset, which docs/adding.md names"
        raise PresetError(f"{preset.file.shown}: a value does not fit [{section}]: {said}", hint=hint) from error


def _read(name: str, text: str, shown: str, file: TeamFile | None = None) -> Preset:
    """Read a preset; whoever wrote it, what it says is of the kind that it must be.

    Raises:
        ScaffoldError: not TOML, or a key or value that no preset has.
    """
    try:
        data = parse_toml(text)
    except MalformedError as error:
        raise ScaffoldError(f"{shown} is not TOML: {error}") from None
    data = _on_base(data, shown) if "base" in data else data
    pipelines, manifest, configs = data.pop("pipelines", []), data.pop("manifest", None), data.pop("configs", {})
    if not KINDS["a list of text"](pipelines):
        raise ScaffoldError(f"{shown}: pipelines is not a list of registry keys", hint='such as ["MyPipeline"]')
    named = isinstance(manifest, str) and manifest.isprintable() and Path(manifest).name == manifest != ".."
    if manifest is not None and not named:
        raise ScaffoldError(
            f"{shown}: manifest is not a file name", hint=f"it names a file of {MANIFESTS}/ beside presets"
        )
    if not _is_tables(configs):
        raise ScaffoldError(f"{shown}: configs holds no tables", hint='such as [configs."config.json"]')
    _require_known(data, shown)
    return Preset(name, tuple(pipelines), manifest, configs, data, file)


def _on_base(data: dict[str, Any], shown: str) -> dict[str, Any]:
    """Return a preset that says what differs from a packaged one, completed: tables key by key, the rest as a whole."""
    name = data.pop("base")
    path = next((path for path in presets_root().glob("*.toml") if path.stem == name), None)
    if path is None:
        known = ", ".join(sorted(path.stem for path in presets_root().glob("*.toml")))
        raise ScaffoldError(f"{shown}: no packaged preset is called {name!r}", hint=f"base is one of {known}")
    return _over(parse_toml(read_text(path)), data)


def _over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = _over(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def _require_known(data: Mapping[str, Any], shown: str) -> None:
    for section, values in data.items():
        if section not in KEYS:
            raise ScaffoldError(f"{shown}: a preset has no [{section}]", hint=_near(section, KEYS))
        if not isinstance(values, Mapping):
            raise ScaffoldError(f"{shown}: {section} is not a table", hint=f"write [{section}]")
        keys = KEYS[section]
        for key, value in values.items():
            kind = keys if isinstance(keys, str) else keys.get(key)
            if section != "recipe" and not isinstance(keys, str) and key not in keys:
                raise ScaffoldError(f"{shown}: a preset has no {section}.{key}", hint=_near(key, keys))
            if kind is not None and not KINDS[kind](value):
                raise ScaffoldError(f"{shown}: {section}.{key} is {repr(value)[:60]}", hint=f"it must be {kind}")
    _require_recipe(data.get("recipe", {}), shown)


def _require_recipe(values: Mapping[str, Any], shown: str) -> None:
    from scaffold.spec.sections.recipe import DEFAULTS

    for key in values:
        if key not in DEFAULTS:
            raise ScaffoldError(f"{shown}: a preset has no recipe.{key}", hint=_near(key, DEFAULTS))
    require_kinds({"recipe": values}, shown)


def _near(name: str, known: Mapping[str, Any]) -> str:
    close = get_close_matches(name, list(known), 1)
    return f"did you mean {close[0]}?" if close else f"it may have {', '.join(known)}"


def _is_tables(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(entry, Mapping) for entry in value.values())
