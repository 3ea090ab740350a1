"""Words of a shell script, with their quotes and places."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from scaffold.check.finding import Span

_HEREDOC = re.compile(r"<<(-?)\s*(['\"]?)(\w+)\2")

# Runs of characters that mean nothing to the shell.
_PLAIN = re.compile(r"""[^\s'"\\$`;|&<>()]+""")
_INSIDE = re.compile(r"""[^"\\$`]+""")
_NEUTRAL = re.compile(r"[^\\'(){}]+")
_BLANK = re.compile(r"(?:[ \t\r]|\\\r?\n)+")
# A word of nothing but such characters, to its end.
_WHOLE = re.compile(r"""[^\s'"\\$`;|&<>()#][^\s'"\\$`;|&<>()]*(?=[ \t\n])""")


class Word(NamedTuple):
    """One word of a script.

    Attributes:
        raw: as written, quotes and all.
        parts: the text without quotes, cut where expansion may happen: ``(text, expands)``.
        span: where it stands.
        text: the text without quotes, variables unexpanded.
    """

    raw: str
    parts: tuple[tuple[str, bool], ...]
    span: Span
    text: str


class Lexer:
    """Splits a script into words; arithmetic, substitutions and expansions stay inside their word."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at, self._line, self._column = 0, 1, 1
        self.comments: dict[int, tuple[int, str]] = {}
        self._heredocs: list[tuple[str, bool]] = []

    def words(self) -> Iterator[Word]:
        whole, blank = _WHOLE.match, _BLANK.match
        while self._at < len(self._text):
            if (plain := whole(self._text, self._at)) is not None:
                yield self._plain(plain[0])
                continue
            if (run := blank(self._text, self._at)) is not None:
                self._take(run.end() - self._at)
                continue
            c = self._text[self._at]
            if c == "\n":
                self._take()
                self._skip_heredocs()
            elif c == "#":
                end = self._text.find("\n", self._at)
                end = len(self._text) if end < 0 else end
                self.comments[self._line] = (self._column, self._text[self._at : end].rstrip("\r"))
                self._take(end - self._at)
            elif c == "<" and (match := _HEREDOC.match(self._text, self._at)):
                self._heredocs.append((match[3], bool(match[1])))
                self._take(match.end() - self._at)
            elif c in "()|&;<>":
                self._take()
            else:
                yield self._word()

    def _plain(self, raw: str) -> Word:
        start = self._column
        self._at += len(raw)
        self._column += len(raw)
        return Word(raw, ((raw, True),), Span(self._line, start, self._line, self._column), raw)

    def _take(self, count: int = 1) -> str:
        taken = self._text[self._at : self._at + count]
        lines = taken.count("\n")
        if lines:
            self._line += lines
            self._column = len(taken) - taken.rfind("\n")
        else:
            self._column += len(taken)
        self._at += len(taken)
        return taken

    def _skip_heredocs(self) -> None:
        for mark, tabs in self._heredocs:
            while self._at < len(self._text):
                end = self._text.find("\n", self._at)
                end = len(self._text) if end < 0 else end + 1
                line = self._take(end - self._at).rstrip("\r\n")
                if (line.lstrip("\t") if tabs else line) == mark:
                    break
        self._heredocs = []

    def _word(self) -> Word:
        line, column, begin = self._line, self._column, self._at
        parts: list[tuple[str, bool]] = []
        while self._at < len(self._text):
            c = self._text[self._at]
            if c in " \t\r\n;|&<>)" or (c == "(" and not self._text[begin : self._at].endswith("=")):
                break
            if c == "(":
                self._take()  # the opening of an array: its elements are words of their own
                break
            if c == "'":
                self._take()
                end = self._text.find("'", self._at)
                end = len(self._text) if end < 0 else end
                parts.append((self._take(end - self._at), False))
                self._take()
            elif c == '"':
                self._take()
                parts += self._quoted()
            elif c == "\\":
                if self._text[self._at + 1 : self._at + 2] == "\n":
                    break
                self._take()
                parts.append((self._take(), False))
            else:
                parts.append((self._expanding(_PLAIN), True))
        raw = self._text[begin : self._at]
        text = "".join([text for text, _ in parts])
        return Word(raw, _joined(parts), Span(line, column, self._line, self._column), text)

    def _quoted(self) -> list[tuple[str, bool]]:
        parts: list[tuple[str, bool]] = []
        while self._at < len(self._text) and self._text[self._at] != '"':
            c = self._text[self._at]
            if c == "\\" and self._text[self._at + 1 : self._at + 2] in ('"', "\\", "$", "`"):
                self._take()
                parts.append((self._take(), False))
            else:
                parts.append((self._expanding(_INSIDE), True))
        self._take()
        return parts

    def _expanding(self, plain: re.Pattern[str]) -> str:
        """Take a substitution, or a run of characters that mean nothing here."""
        c = self._text[self._at]
        if c == "$" and self._text[self._at + 1 : self._at + 2] in ("(", "{"):
            return self._balanced()
        if c == "`":
            return self._until("`")
        run = plain.match(self._text, self._at)
        return self._take(run.end() - self._at if run else 1)

    def _until(self, mark: str) -> str:
        taken = self._take()
        while self._at < len(self._text) and self._text[self._at] != mark:
            taken += self._take(2 if self._text[self._at] == "\\" else 1)
        return taken + self._take()

    def _balanced(self) -> str:
        """Take ``$(…)`` or ``${…}`` with everything inside, quotes respected."""
        opening = self._text[self._at + 1]
        closing = ")" if opening == "(" else "}"
        taken, depth = self._take(2), 1
        while self._at < len(self._text) and depth:
            neutral = _NEUTRAL.match(self._text, self._at)
            if neutral is not None:
                taken += self._take(neutral.end() - self._at)
                continue
            c = self._text[self._at]
            if c == "\\":
                taken += self._take(2)
                continue
            if c == "'" and opening == "(":
                taken += self._until("'")
                continue
            depth += (c == opening) - (c == closing)
            taken += self._take()
        return taken


def _joined(parts: list[tuple[str, bool]]) -> tuple[tuple[str, bool], ...]:
    """Join neighbours of one kind."""
    found: list[tuple[str, bool]] = []
    for text, expands in parts:
        if found and found[-1][1] == expands:
            found[-1] = (found[-1][0] + text, expands)
        else:
            found.append((text, expands))
    return tuple(found)
