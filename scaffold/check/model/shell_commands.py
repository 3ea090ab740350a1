"""The commands and arrays of a shell script: which words belong together, and what ends each."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

from scaffold.check.model.shell import OVERRIDE, ShellScript
from scaffold.check.model.shell_words import Word

_ARRAY = re.compile(r"^(\w+)(\+?)=\($")
_EXPANDED = re.compile(r"^\"?\$\{(\w+)\[[@*]\]\}\"?$")
_COMPOUND = {
    "if",
    "then",
    "elif",
    "else",
    "fi",
    "for",
    "while",
    "until",
    "do",
    "done",
    "case",
    "esac",
    "function",
    "{",
    "}",
    "!",
}


@dataclass
class Command:
    """One simple command.

    Attributes:
        words: its words, assignments in front of it included.
        ended_by: the operator behind it: ``&``, ``|``, ``;``, ``&&``, a line end.
    """

    words: list[Word] = field(default_factory=list)
    ended_by: str = ""


@dataclass
class Array:
    """One assignment of an array.

    Attributes:
        name: the variable.
        head: the word ``name=(``.
        appends: whether it is written with ``+=``.
        words: the elements.
        before: how many commands stand before it.
        plain: whether nothing but the line's beginning stands in front of it.
    """

    name: str
    head: Word
    appends: bool
    words: list[Word]
    before: int
    plain: bool


@lru_cache(maxsize=32)
def commands_of(script: ShellScript) -> tuple[list[Command], list[Array]]:
    """Return the simple commands and the arrays of a script, in order."""
    tokens: list[tuple[int, int, Word | str]] = [(w.span.line, w.span.column, w) for w in script.words]
    tokens += [(line, column, text) for line, column, text in script.operators]
    tokens.sort(key=lambda token: token[:2])
    commands: list[Command] = [Command()]
    arrays: list[Array] = []
    inside = False
    for line, column, token in tokens:
        if isinstance(token, Word):
            head = _ARRAY.match(token.raw)
            if inside:
                arrays[-1].words.append(token)
            elif head:
                before = sum(1 for command in commands if command.words)
                plain = not script.line(line)[: column - 1].strip() and not commands[-1].words
                arrays.append(Array(head[1], token, bool(head[2]), [], before, plain))
                inside = True
            else:
                commands[-1].words.append(token)
        elif inside:
            inside = token != ")"
        elif not set(token) & set("<>") and commands[-1].words:
            commands[-1].ended_by = token
            commands.append(Command())
    return [command for command in commands if command.words], arrays


def expanded(word: Word) -> str | None:
    """Return the array that a word expands, ``"${name[@]}"``."""
    found = _EXPANDED.match(word.raw)
    return found[1] if found else None


def straight(commands: list[Command]) -> bool:
    """Whether commands stand one after the other, without a branch, a loop or a function among them."""
    return not any(word.text in _COMPOUND for command in commands for word in command.words[:1])


def is_override(word: Word) -> bool:
    """Whether a word is a ``key=value`` for the trainer."""
    return OVERRIDE.match(word.text) is not None
