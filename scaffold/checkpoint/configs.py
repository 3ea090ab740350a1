"""The JSON files beside the weights: model configs, token tables."""

from __future__ import annotations

from typing import Any

from scaffold.checkpoint.folder import Folder
from scaffold.checkpoint.index import SUFFIX
from scaffold.checkpoint.json_bounds import parse_config
from scaffold.errors import ScaffoldError

MAX_CONFIG_BYTES = 2_000_000
MAX_CONFIGS = 64


def is_config(name: str) -> bool:
    """Tell whether a file name is that of a JSON file other than a weight index."""
    return name.endswith(".json") and not name.endswith((SUFFIX, ".bin.index.json"))


def accept_config(name: str, raw: bytes, label: str) -> dict[str, Any] | str:
    """Return a config's object, or the reason why the file is left out.

    Raises:
        ScaffoldError: the file calls itself a config and cannot be parsed.
    """
    try:
        value = parse_config(raw, label)
    except ScaffoldError as error:
        if "config" in name:
            raise
        return error.message.removeprefix(label).strip()
    return "holds no JSON object" if value is None else value


def read_configs(folder: Folder, names: list[str]) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return the configs of a folder by file name, and the reason for each JSON file that was left out.

    Token tables and vocabularies above 2 MB are left out; a config that large is an error.

    Raises:
        ScaffoldError: a file called ``*config*`` is too large, no JSON, or a link that leaves the folder.
    """
    configs: dict[str, dict[str, Any]] = {}
    skipped: dict[str, str] = {}
    for name in filter(is_config, names):
        if len(configs) >= MAX_CONFIGS:
            skipped[name] = f"more than {MAX_CONFIGS} JSON files"
            continue
        try:
            raw = folder.read_small(name, MAX_CONFIG_BYTES)
        except ScaffoldError as error:
            if "config" in name:
                raise
            skipped[name] = error.message.replace(str(folder.shown), folder.shown.name)
            continue
        value = accept_config(name, raw, folder.label(name))
        if isinstance(value, str):
            skipped[name] = value
        else:
            configs[name] = value
    return configs, skipped
