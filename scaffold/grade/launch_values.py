"""Validates values that are rendered verbatim into scripts and code: inside shell quotes and braces, and as names."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any

_PLAIN = re.compile(r"[\w.,/ -]*", re.ASCII)
_INSTALL = re.compile(r"pip install [\w.,/ \[\]'-]+", re.ASCII)
_KINDS = ("image", "video", "audio", "action", None)


def _plain(value: Any) -> bool:
    return value is None or (isinstance(value, str) and _PLAIN.fullmatch(value) is not None)


def _plain_list(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(entry, str) and _plain(entry) for entry in value)


def _media(value: Any) -> bool:
    return isinstance(value, list | tuple) and set(value) <= {"image", "audio"}


def _texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(entry, str) for entry in value)


def _settings(value: Any) -> bool:
    """Whether the value is a table of names with plain values."""
    return value is None or (
        isinstance(value, dict)
        and all(isinstance(key, str) and key.isascii() and key.isidentifier() for key in value)
        and all(isinstance(entry, bool | int | float) or (_plain(entry) and entry) for entry in value.values())
    )


def _prepare(value: Any) -> bool:
    """Whether the value is a function's name with values for its arguments."""
    return value is None or (
        isinstance(value, dict)
        and set(value) == {"function", "arguments"}
        and isinstance(value["function"], str)
        and value["function"].isidentifier()
        and value["arguments"] is not None
        and _settings(value["arguments"])
    )


def _commands(value: Any) -> bool:
    return value is None or (
        isinstance(value, list | tuple)
        and all(isinstance(entry, str) and _INSTALL.fullmatch(entry) is not None for entry in value)
    )


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _count(value: Any) -> bool:
    return value is None or (type(value) is int and value > 0)


def _grid(value: Any) -> bool:
    """Whether the value gives the number of tokens per image."""
    return value is None or (
        isinstance(value, dict)
        and set(value) == {"pixels", "row_end", "last"}
        and all(type(entry) is int and entry >= 0 for entry in value.values())
        and value["pixels"] > 0
    )


def _name(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value.isidentifier())


def _states(value: Any) -> bool:
    return value is None or (isinstance(value, list | tuple) and all(map(_state, value)))


def _state(entry: Any) -> bool:
    if not isinstance(entry, dict) or set(entry) != {"owner", "name", "first"}:
        return False
    if not all(isinstance(part, str) for part in entry.values()) or not _name(entry["owner"]):
        return False
    try:
        return isinstance(ast.parse(entry["first"], mode="eval").body, ast.Constant)
    except (SyntaxError, ValueError):
        return False


RULES: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("port.method", _name, "a name or absent"),
    ("port.state", _states, "a list of tables with owner, name and first, a constant"),
    ("recording.kind", lambda value: value in ("attribute", "constructed", "update", None), "a known kind or absent"),
    ("prompt.chat_tokenizer", lambda value: value in (True, False, None), "true, false or absent"),
    ("media.kind", lambda value: value in _KINDS, "image, video, audio, action or absent"),
    ("media.ocr", _flag, "true or false"),
    ("media.lacks", _plain_list, "a list of plain words"),
    ("media.prepared", lambda value: value is None or _plain_list(value), "a list of plain words, or absent"),
    ("media.required", _media, "a list of image, audio"),
    ("media.sends", _media, "a list of image, audio"),
    ("media.structured", lambda value: value in (True, None), "true or absent"),
    ("deploy.additional_config", _settings, "a table of names with numbers, plain words, true or false, or absent"),
    ("deploy.installs", _commands, "a list of commands of pip, or absent"),
    ("deploy.prepare", _prepare, "a table with function, a name, and arguments, plain values, or absent"),
    ("deploy.behind", _plain, "a plain word"),
    ("deploy.file", _plain, "a plain file name"),
    ("deploy.position", _count, "a positive whole number or absent"),
    ("deploy.grid", _grid, "a table with pixels, row_end and last, whole numbers, or absent"),
    ("deploy.prepares", _name, "an identifier or absent"),
    ("deploy.stages", lambda value: value is None or _plain_list(value), "a list of plain words"),
    ("recipe.sized", _flag, "true or false"),
    ("recipe.framed", _flag, "true or false"),
    ("lora.unnamed", lambda value: value is None or _texts(value), "a list of names, or absent"),
    ("lora.unread", lambda value: value is None or _texts(value), "a list of names, or absent"),
    ("lora.uncalled", lambda value: value is None or _texts(value), "a list of names, or absent"),
    ("lora.layer_prefixes", _texts, "a list of names"),
    ("lora.layer_counts", _texts, "a list of names"),
    ("lora.sync", lambda value: value in ("fold", "merge", "missing", "none"), "fold, merge, missing or none"),
)
