"""Strings that try to leave the quotes they are put into, and readers that notice where one did."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from typing import Any

import yaml
from markdown_it import MarkdownIt

MARK = "zq_leaf"
HOSTILE = {
    "double quote": f'" + {MARK}() + "',
    "single quote": f"' + {MARK}() + '",
    "newline": f"a\n{MARK}()\n",
    "carriage return": f"a\r{MARK}()\r",
    "line separator": f"a\u2028{MARK}()\u0085",
    "backslash": f"{MARK}\\",
    "template": "{{ " + MARK + " }}{% if " + MARK + " %}",
    "braces": "{" + MARK + "()}",
    "closing brace": "}; " + MARK + "; {",
    "command": f"$({MARK})",
    "backticks": f"`{MARK}`",
    "one backtick": f"` {MARK}",
    "number sign": f"# {MARK}",
    "triple quote": f'""" + {MARK}() + """',
    "three single quotes": f"''' + {MARK}() + '''",
    "comment of HTML": f"--> <script>{MARK}</script> <!--",
    "pipe": f"a | {MARK} | b",
    "semicolon": f"a; {MARK} && {MARK}",
    "call": f"{MARK}()",
    "bracket": f"]({MARK}) [{MARK}](http://{MARK})",
    "parenthesis": f") + {MARK}() + (",
    "yaml": f"a: {MARK}\n- b",
    "fence": f"\n```\n{MARK}\n```\n",
}


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every string in a nest of tables and lists."""
    if isinstance(value, str):
        yield path
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from leaves(one, (*path, key))
    elif isinstance(value, list | tuple):
        for index, one in enumerate(value):
            yield from leaves(one, (*path, index))


def distinct_leaves(value: Any) -> list[tuple[Any, ...]]:
    """Return the paths of the strings, of the entries of a list only the first that has a string there."""
    found: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for path in leaves(value):
        found.setdefault(tuple("" if isinstance(part, int) else part for part in path), path)
    return list(found.values())


def with_leaf(value: Any, path: tuple[Any, ...], new: str) -> Any:
    """Return a copy with the string at ``path`` replaced."""
    if not path:
        return new
    if isinstance(value, dict):
        return {key: with_leaf(one, path[1:], new) if key == path[0] else one for key, one in value.items()}
    return [with_leaf(one, path[1:], new) if index == path[0] else one for index, one in enumerate(value)]


def in_python(text: str) -> str | None:
    """Return where the mark is an identifier of Python source, inside of a replacement field too."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant):
            continue
        for _, field in ast.iter_fields(node):
            for one in field if isinstance(field, list) else [field]:
                if isinstance(one, str) and MARK in one:
                    return f"line {getattr(node, 'lineno', '?')}: {type(node).__name__}"
    return None


def in_shell(text: str) -> str | None:
    """Return where the mark stands outside single quotes and comments of a shell script."""
    done = subprocess.run(["bash", "--norc", "-n"], input=text.encode(), capture_output=True, check=False)
    if done.returncode:
        return done.stderr.decode()
    state, at = "bare", 0
    while at < len(text):
        char = text[at]
        if state == "single":
            state = "bare" if char == "'" else state
        elif state == "comment":
            state = "bare" if char == "\n" else state
        elif text.startswith(MARK, at):
            return f"line {text.count(chr(10), 0, at) + 1}: {state}"
        elif char == "\\":
            at += 1
        elif char == '"':
            state = "double" if state == "bare" else "bare"
        elif char == "'" and state == "bare":
            state = "single"
        elif char == "#" and state == "bare" and (at == 0 or text[at - 1] in " \t\n;"):
            state = "comment"
        at += 1
    return None


def in_yaml(text: str) -> str | None:
    """Return the token of YAML other than a quoted scalar that holds the mark."""
    list(yaml.safe_load_all(text))
    for token in yaml.scan(text):
        if MARK in str(getattr(token, "value", "")) and getattr(token, "style", None) not in ("'", '"'):
            return f"line {token.start_mark.line + 1}: {token}"
    return None


READER = MarkdownIt("commonmark").enable("table")
HARMLESS = frozenset({"text", "softbreak", "code_inline"})


def blocks(text: str) -> list[tuple[str, int]]:
    """Return the structure of a Markdown page: its blocks without their text."""
    return [(token.type, token.level) for token in READER.parse(text)]


def in_markdown(text: str) -> str | None:
    """Return where the mark is anything but text or a code span of a Markdown page."""
    for token in READER.parse(text):
        if token.type == "inline":
            for child in token.children or []:
                shown = f"{child.content} {child.attrs}"
                if MARK in shown and child.type not in HARMLESS:
                    return f"{child.type}: {shown[:100]}"
        elif MARK in token.content:
            return f"{token.type}: {token.content[:100]}"
    return None


READERS = {".py": in_python, ".sh": in_shell, ".yaml": in_yaml, ".md": in_markdown}
