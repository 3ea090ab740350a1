"""What the values that scripts are made of may be: they stand between quotes and braces of a shell."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

_PLAIN = re.compile(r"[\w.,/ -]*", re.ASCII)
_KINDS = ("image", "video", "audio", "action", None)


def _plain(value: Any) -> bool:
    return value is None or (isinstance(value, str) and _PLAIN.fullmatch(value) is not None)


def _plain_list(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(entry, str) and _plain(entry) for entry in value)


def _texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(entry, str) for entry in value)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _count(value: Any) -> bool:
    return value is None or (type(value) is int and value > 0)


RULES: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("media.kind", lambda value: value in _KINDS, "image, video, audio, action or absent"),
    ("media.ocr", _flag, "true or false"),
    ("media.lacks", _plain_list, "a list of plain words"),
    ("deploy.behind", _plain, "a plain word"),
    ("deploy.file", _plain, "a plain file name"),
    ("deploy.stages", lambda value: value is None or _plain_list(value), "a list of plain words"),
    ("recipe.num_frames", _count, "a positive whole number or absent"),
    ("recipe.sized", _flag, "true or false"),
    ("recipe.framed", _flag, "true or false"),
    ("lora.targets", _texts, "a list of names"),
    ("lora.layer_prefixes", _texts, "a list of names"),
    ("lora.layer_counts", _texts, "a list of names"),
    ("lora.sync", lambda value: value in ("fold", "missing", "none"), "fold, missing or none"),
)
