"""Values of a checkpoint's JSON files, checked before they are believed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scaffold.errors import ScaffoldError
from scaffold.spec.section import Section

ROOT = "config.json"


def text_config_file(section: Section) -> str:
    """Return the file from which the pipeline reads the language model's sizes."""
    read, _ = section.known("detail.config_files")
    files = [name for name, entry in (read or {}).items() if "num_attention_heads" in (entry.get("keys") or {})]
    return files[0] if len(files) == 1 else ROOT


def text_config(section: Section) -> Mapping[str, Any]:
    """Return the language model's configuration.

    Raises:
        ScaffoldError: the checkpoint has neither that file nor its section in ``config.json``.
    """
    configs, name = section.sources.configs, text_config_file(section)
    inner = section.sources.preset.value("checkpoint", "text_section")
    found, root = configs.get(name), configs.get(ROOT)
    if (found is None or name == ROOT) and isinstance(root, dict) and inner is not None:
        found = root.get(inner)
    if not isinstance(found, dict):
        raise ScaffoldError(f"{section.sources.headers.source}: {_why(section, name)}", hint="the pipeline reads it")
    return found


def root_config(section: Section) -> Mapping[str, Any]:
    """Return ``config.json``; empty for a packaged manifest, which has none, and where nothing is read from it.

    Raises:
        ScaffoldError: a real checkpoint lacks it.
    """
    found = section.sources.configs.get(ROOT)
    if isinstance(found, dict):
        return found
    if section.sources.real_checkpoint and _reads_root(section):
        raise ScaffoldError(f"{section.sources.headers.source}: {_why(section, ROOT)}", hint="the pipeline reads it")
    return {}


def _reads_root(section: Section) -> bool:
    """Whether a value comes from ``config.json``; where no preset knows the model it is asked for in any case."""
    preset = section.sources.preset
    keys = ("root_config", "text_section", "divided_by", "fixed_config")
    said = [preset.value("checkpoint", key) for key in keys] + [preset.value("architecture", "noise_rule")]
    said += [token.get("config_key") for token in preset.sections.get("tokens", {}).values()]
    return preset.name == "none" or text_config_file(section) == ROOT or any(said)


def _why(section: Section, name: str) -> str:
    reason = section.sources.headers.skipped.get(name)
    return f"{name} was not read ({reason})" if reason else f"{name} is missing"


def positive_int(config: Mapping[str, Any], key: str, where: str) -> int:
    """Return an integer above 0.

    Raises:
        ScaffoldError: it is missing or something else.
    """
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 2**31:
        raise ScaffoldError(f"{where}: {key} is {_shown(value)}", hint="expected a positive integer")
    return value


def positive_float(config: Mapping[str, Any], key: str, where: str) -> float:
    """Return a finite number above 0.

    Raises:
        ScaffoldError: it is missing or something else.
    """
    value = config.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1e30:
        raise ScaffoldError(f"{where}: {key} is {_shown(value)}", hint="expected a positive number")
    return float(value)


def follow(config: Mapping[str, Any], path: str) -> Any:
    """Return the entry at a dotted path; None where there is none."""
    entry: Any = config
    for part in path.split("."):
        entry = entry.get(part) if isinstance(entry, Mapping) else None
    return entry


def _shown(value: Any) -> str:
    text = "missing" if value is None else repr(value)
    return text if len(text) <= 60 else text[:60] + "…"
