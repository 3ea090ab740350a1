"""Each text is parsed once in a process: tests read the same files again and again, and nobody changes a tree.

Imported before any module of the tool that takes the function for itself.
"""

from __future__ import annotations

from functools import lru_cache

from scaffold.files import parsing

parsing.parse = lru_cache(maxsize=512)(parsing.parse)

from scaffold.check.model import python_text  # noqa: E402

python_text.Index = lru_cache(maxsize=128)(python_text.Index)
