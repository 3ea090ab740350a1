"""The JSON files beside the weights: model configs, token tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from scaffold.checkpoint.folder import Folder
from scaffold.checkpoint.headers import INDEX_SUFFIX
from scaffold.checkpoint.json_bounds import parse_config
from scaffold.errors import ScaffoldError

MAX_CONFIG_BYTES = 2_000_000
MAX_CONFIGS = 64


def is_config(name: str) -> bool:
    """Return whether a file name is that of a JSON file other than a weight index."""
    return name.endswith(".json") and not name.endswith((INDEX_SUFFIX, ".bin.index.json"))


def read_configs(folder: Folder, names: list[str]) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return the configs of a folder by file name, and the reason for each JSON file that was left out.

    Token tables and vocabularies above 2 MB are left out; a config that large is an error.

    Raises:
        ScaffoldError: a file called ``*config*`` is too large, no JSON, or a link that leaves the folder.
    """
    return collect(names, lambda name: folder.read_small(name, MAX_CONFIG_BYTES), folder.label)


def collect(
    names: Iterable[str], read: Callable[[str], bytes], label: Callable[[str], str]
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return configs and reasons as ``read_configs`` does, with a given function to read a file.

    Args:
        names: all files of the checkpoint.
        read: gives a file's content, or raises ScaffoldError.
        label: how errors name a file.

    Raises:
        ScaffoldError: a file called ``*config*`` cannot be read or parsed.
    """
    configs: dict[str, dict[str, Any]] = {}
    skipped: dict[str, str] = {}
    for name in filter(is_config, names):
        if len(configs) >= MAX_CONFIGS:
            skipped[name] = f"more than {MAX_CONFIGS} JSON files"
            continue
        try:
            value = parse_config(read(name), label(name))
        except ScaffoldError as error:
            if "config" in name:
                raise
            skipped[name] = error.message.removeprefix(label(name)).strip()
            continue
        if value is None:
            skipped[name] = "holds no JSON object"
        else:
            configs[name] = value
    return configs, skipped
