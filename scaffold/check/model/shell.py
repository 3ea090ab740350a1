"""Shell scripts: words with their quotes, ``key=value`` overrides, variables that are set once.

Only variables that the script sets exactly once are expanded; every other value is `UNKNOWN`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from scaffold.check.finding import Span
from scaffold.check.model.shell_words import Lexer, Word
from scaffold.check.model.source import SourceFile
from scaffold.files.documents import MalformedError, parse_yaml
from scaffold.source.values import UNKNOWN

OVERRIDE = re.compile(r"^(\+{0,2}|~)([A-Za-z_]\w*(?:\.[\w-]+)+)=")
_ASSIGNMENT = re.compile(r"^([A-Za-z_]\w*)(\+?)=")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?-([^}]*))?\})")
_DEFAULT = re.compile(r"\$\{\w+:?-(.*)\}", re.DOTALL)
_ALONE = re.compile(r"\$\{?(\w+)\}?")
_FILE = re.compile(r"[\w}]\.(?:sh|py|ya?ml)$")
_PLAIN = re.compile(r"^[\w./-]+$")
# The script's own folder, as scripts spell it.
_HERE = re.compile(
    r"^(?:\$\(\s*dirname\s+\"?(?:\$0|\$\{BASH_SOURCE\[0\]\}|\$\{BASH_SOURCE\}|\$BASH_SOURCE|\$\{0\})\"?\s*\)"
    r"|\$\(\s*cd\s+(?:--\s+)?\"?\$\(\s*dirname\s+(?:--\s+)?\"?(?:\$0|\$\{BASH_SOURCE\[0\]\}|\$\{BASH_SOURCE\}|\$BASH_SOURCE)\"?"
    r"\s*\)\"?\s*&&\s*pwd(?:\s+-P)?\s*\))/"
)


class Override:
    """A ``key=value`` argument of the trainer.

    Args:
        script: the script.
        word: the word that holds it.
        match: `OVERRIDE` in the word's text.

    Attributes:
        key: without the ``+`` of Hydra.
        prefix: that ``+``, ``++`` or ``~``.
        raw: the value as written, without quotes.
        span: where the whole word stands.
    """

    def __init__(self, script: ShellScript, word: Word, match: re.Match[str]) -> None:
        self._script, self._word, self._start = script, word, match.end()
        self.prefix, self.key, self.raw, self.span = match[1], match[2], word.text[match.end() :], word.span

    @cached_property
    def value(self) -> Any:
        """The value with the script's own variables filled in, `UNKNOWN` where those are unknown."""
        return self._script.expand(self._word, self._start)

    @cached_property
    def usual(self) -> Any:
        """The same where the environment sets none of the variables, so that ``${NAME:-default}`` is its default."""
        return self._script.expand(self._word, self._start, unset=True)

    @property
    def value_span(self) -> Span:
        """Where its value stands, quotes included."""
        line, column, end_line, end_column = self.span
        return Span(line, column + self._word.raw.find("=") + 1, end_line, end_column)


class Preset(NamedTuple):
    """A setting of the Hydra configuration that a script starts from, with the interface of `Override`.

    Attributes:
        key: as in an override.
        raw, value, usual: the value as an override writes it.
        span, value_span: the word of the script that names the configuration.
        prefix: ``++``, since the key need not exist in another configuration.
    """

    key: str
    raw: str
    span: Span
    prefix: str = "++"

    @property
    def value(self) -> Any:
        """The value; nothing is filled in."""
        return UNKNOWN if "${" in self.raw else self.raw

    @property
    def usual(self) -> Any:
        """The same: the environment sets none of it."""
        return self.value

    @property
    def value_span(self) -> Span:
        """The same place as that of the whole."""
        return self.span


class PathMention(NamedTuple):
    """A file that a script names.

    Attributes:
        text: as written, without quotes; variables unexpanded.
        path: from the root of the tree; None where the text does not tell.
        span: where the word stands.
    """

    text: str
    path: str | None
    span: Span

    @property
    def name(self) -> str:
        """The file name without folders."""
        return self.text.rpartition("/")[2]


class ShellScript(SourceFile):
    """A shell script."""

    @cached_property
    def _lexed(self) -> tuple[list[Word], dict[int, tuple[int, str]]]:
        lexer = Lexer(self.readable)
        return list(lexer.words()), lexer.comments

    @property
    def words(self) -> list[Word]:
        """All words outside of comments and here-documents, in order."""
        return self._lexed[0]

    @property
    def comments(self) -> dict[int, tuple[int, str]]:
        """Line -> (column, comment with its ``#``)."""
        return self._lexed[1]

    @cached_property
    def variables(self) -> dict[str, list[Word]]:
        """Variable -> the words that set it."""
        found: dict[str, list[Word]] = {}
        for word in self.words:
            match = _ASSIGNMENT.match(word.raw)
            if match and not OVERRIDE.match(word.raw):
                found.setdefault(match[1], []).append(word)
        return found

    @cached_property
    def overrides(self) -> list[Override | Preset]:
        """All overrides, in order; those of the configuration that the script starts from first."""
        own = [Override(self, word, match) for word in self.words if (match := OVERRIDE.match(word.text))]
        return [*self.presets, *own]

    presets: Sequence[Preset] = ()

    @cached_property
    def configuration(self) -> tuple[str, Span] | None:
        """Name of the Hydra configuration that the script asks for, and where; None where it asks for none."""
        for word, after in zip(self.words, [*self.words[1:], None], strict=True):
            option, equals, name = word.text.partition("=")
            if option in ("--config-name", "-cn"):
                named = name if equals else after.text if after is not None else ""
                return named.removesuffix(".yaml"), word.span
        return None

    def override(self, key: str) -> Override | Preset | None:
        """Return the last override of a key, which is the one that counts."""
        return self._last_overrides.get(key)

    @cached_property
    def _last_overrides(self) -> dict[str, Override | Preset]:
        return {item.key: item for item in self.overrides}

    def behind(self, text: str) -> str:
        """Return a text, or the value of the variable that it names; variables in that value stay as they are."""
        alone = _ALONE.fullmatch(text)
        words = self.variables.get(alone[1], []) if alone is not None else []
        match = _ASSIGNMENT.match(words[0].text) if len(words) == 1 else None
        return words[0].text[match.end() :] if match is not None else text

    @cached_property
    def paths(self) -> list[PathMention]:
        """Files that words, values of overrides or variables name by their ending, in order."""
        found = []
        for word in self.words:
            text = word.text
            match = OVERRIDE.match(text) or _ASSIGNMENT.match(text)
            default = _DEFAULT.fullmatch(text[match.end() :]) if match else _DEFAULT.fullmatch(text)
            value = default[1].strip("\"'") if default else text[match.end() :] if match else text
            if _FILE.search(value) and "\n" not in value and (" " not in value or _HERE.match(value)):
                found.append(PathMention(value, self._path(value), word.span))
        return found

    def _path(self, value: str) -> str | None:
        """Return the path from the root of the tree that a value names; None where the text does not tell."""
        here = _HERE.match(value)
        if here:
            return _normal(f"{self.folder}/{value[here.end() :]}")
        filled = self._filled(re.sub(r"^\$(?:PWD|\{PWD\})/", "", value), ())
        if not isinstance(filled, str) or filled.startswith(("/", "~")) or not _PLAIN.match(filled):
            return None
        return _normal(filled)

    def expand(self, word: Word, skip: int, seen: tuple[str, ...] = (), unset: bool = False) -> Any:
        """Return a word from a character of its text on, variables filled in; see `Override`."""
        out = []
        for text, expands in word.parts:
            cut, skip = text[skip:], max(0, skip - len(text))
            if not expands:
                out.append(cut)
                continue
            filled = self._filled(cut, seen, unset)
            if filled is UNKNOWN:
                return UNKNOWN
            out.append(filled)
        return "".join(out)

    def _filled(self, text: str, seen: tuple[str, ...], unset: bool = False) -> Any:
        if "`" in text or "$(" in text:
            return UNKNOWN
        if "$" not in text:
            return text
        out, at = [], 0
        for match in _VARIABLE.finditer(text):
            name, default = match[1] or match[2], match[3]
            if unset and default is not None and (name in seen or name not in self.variables):
                value = self._filled(default.strip("\"'"), (*seen, name), unset)
            else:
                value = self._variable(name, seen, unset)
            if value is UNKNOWN:
                return UNKNOWN
            out += [text[at : match.start()], value]
            at = match.end()
        out.append(text[at:])
        return UNKNOWN if "$" in text[at:] else "".join(out)

    def _variable(self, name: str, seen: tuple[str, ...], unset: bool = False) -> Any:
        words = self.variables.get(name, [])
        if len(words) != 1 or name in seen:
            return UNKNOWN
        word = words[0]
        match = _ASSIGNMENT.match(word.raw)
        if match is None or match[2] or word.raw.endswith("=("):
            return UNKNOWN
        return self.expand(word, match.end(), (*seen, name), unset)


def _normal(path: str) -> str | None:
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            if not parts:
                return None
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


MODEL = "actor_rollout_ref.model."
ROLLOUT = "actor_rollout_ref.rollout."
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def names(value: Any) -> list[str] | None:
    """Return the entries of ``["a", "b"]`` or ``[a,b]``; None for anything else, a single pattern too."""
    if not isinstance(value, str):
        return None
    text = value.strip()
    if not (text.startswith("[") and text.endswith("]")) or "{" in text or "[" in text[1:]:
        return None
    entries = [entry.strip().strip("\"'") for entry in text[1:-1].split(",")]
    return [entry for entry in entries if entry]


def integers(value: Any) -> list[int] | None:
    """Return the whole numbers of ``[0, 7]``; None for anything else."""
    entries = names(value)
    try:
        return None if entries is None else [int(entry) for entry in entries]
    except ValueError:
        return None


def integer(value: Any) -> int | None:
    """Return a whole number; None for anything else."""
    try:
        return int(value) if isinstance(value, str) and len(value) < 20 else None
    except ValueError:
        return None


def truth(value: Any) -> bool | None:
    """Return a truth value as YAML spells it; None for anything else."""
    text = value.strip().lower() if isinstance(value, str) else ""
    return True if text in _TRUE else False if text in _FALSE else None


def lora_rank(script: ShellScript) -> int | None:
    """Return the LoRA rank that a script asks for: 0 (the trainer's default) where it says nothing, None if unknown."""
    override = script.override(f"{MODEL}lora_rank")
    return 0 if override is None else integer(override.value)


def presets(script: ShellScript, files: Sequence[SourceFile]) -> list[Preset]:
    """Return the settings of the configuration that a script asks for: of the one file with that name.

    Args:
        script: the script.
        files: YAML files that it may be.
    """
    asked = script.configuration
    found = [file for file in files if asked is not None and file.name == f"{asked[0]}.yaml"]
    if asked is None or len(found) != 1:
        return []
    try:
        document = parse_yaml(found[0].readable)
    except MalformedError:
        return []
    return [Preset(".".join(keys), raw, asked[1]) for keys, raw in _leaves(document, ()) if keys[0] != "defaults"]


def _leaves(value: Any, keys: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, (*keys, str(key)))
    elif keys:
        yield keys, value if isinstance(value, str) else json.dumps(value, default=str)
