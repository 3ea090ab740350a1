"""Changes of documents that no tool writes: values replaced, moved, renamed, doubled; bytes that are no document."""

from __future__ import annotations

import copy
import random
from typing import Any

CODE = '"""\nimport canary\ncanary.sing()\n#"); canary.sing() #\\"; $(canary) `canary`'
"""Text that ends the literal it stands in where a writer forgets to escape it."""
VALUES: tuple[Any, ...] = (
    CODE, CODE, "canary.sing", "os.system", "builtins.print", "../../canary", "/etc/passwd", "{{ canary }}", "{% x %}",
    "\x1b[31m\n::error::x", "\ud7ff\u202e", "x" * 70_000, "", "-", "layers.{i}.x", "%s%d", True, False, 0, -1, 2**63,
    10**18, 1e308, float("inf"), float("nan"), 0.5, [], [[]], {}, [{}], {"": {}}, [CODE], {"command": CODE}, [1, "a"],
)  # fmt: skip
SIGNS = b"0123456789{}[]\"',:=#\\.\n abB\x00\x1b\xff"


def changed(document: Any, chance: random.Random) -> Any:
    """Return a copy of a document of tables, lists and plain values with one to four changes."""
    made = copy.deepcopy(document)
    for _ in range(chance.choice((1, 1, 2, 4))):
        holder, key = chance.choice(places(made))
        what = chance.randrange(6)
        if what < 3:
            holder[key] = copy.deepcopy(chance.choice(VALUES))
        elif what == 3:
            del holder[key]
        elif what == 4:
            other, elsewhere = chance.choice(places(made))
            holder[key] = copy.deepcopy(other[elsewhere])
        elif isinstance(holder, dict):
            holder[str(chance.choice((*holder, CODE, "canary", "__class__", "a.b")))] = holder.pop(key)
        else:
            holder += copy.deepcopy(holder)[:100]
        if not places(made):
            return made
    return made


def places(document: Any) -> list[tuple[Any, Any]]:
    """Every holder with every key of it, however deep."""
    keys = list(document) if isinstance(document, dict) else range(len(document)) if isinstance(document, list) else ()
    found: list[tuple[Any, Any]] = []
    for key in keys:
        found += [(document, key), *places(document[key])]
    return found


def damaged(raw: bytes, chance: random.Random) -> bytes:
    """Return other bytes: some changed, moved, doubled or cut off."""
    made = bytearray(raw)
    for _ in range(chance.choice((1, 1, 2, 8))):
        at = chance.randrange(len(made) + 1)
        what = chance.randrange(6)
        if what == 0:
            del made[at:]
        elif what == 1:
            made[at : at + 20] = raw[(other := chance.randrange(len(raw) + 1)) : other + 20]
        elif what == 2:
            made[at:at] = bytes(chance.choice(SIGNS) for _ in range(chance.choice((1, 9, 3000))))
        elif what == 3:
            made[at:at] = chance.choice((b"[", b"{", b'{"a":', b"9")) * chance.choice((2, 300, 60_000))
        elif at < len(made):
            made[at] = chance.choice(SIGNS) if what == 4 else made[at] ^ 1 << chance.randrange(8)
    return bytes(made)
