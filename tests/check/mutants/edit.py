"""Changes of source text: of Python through libcst, so that what parses still parses; of other text at an anchor.

Every edit names what it expects to find. Where that is not there, or not as often as it says, `AnchorError` is raised:
a mutant that no longer changes anything must not count.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import libcst as cst


class AnchorError(AssertionError):
    """The text that a mutant changes is not there."""


@lru_cache(maxsize=64)
def parsed(text: str) -> cst.Module:
    """Return the syntax tree of a file; trees are not changed in place."""
    return cst.parse_module(text)


_EMPTY = cst.Module([])


def written(node: cst.CSTNode) -> str:
    """Return a node's source without comments, white space and closing commas, to compare by."""
    text = re.sub(r"#[^\n]*", "", _EMPTY.code_for_node(node))
    return re.sub(r",(?=[)\]}])", "", "".join(text.split())).rstrip(",;")


def _expression(code: str) -> cst.BaseExpression | None:
    try:
        return cst.parse_expression(code.strip())
    except cst.ParserSyntaxError:
        return None


def _statements(code: str) -> list[cst.BaseStatement]:
    import textwrap

    return list(cst.parse_module(textwrap.dedent(code).strip("\n") + "\n").body)  # type: ignore[arg-type]


def _path(module: cst.Module, within: str) -> list[Any]:
    """Return the module and the classes and functions of a dotted path, from the outside to the inside."""
    nodes: list[Any] = [module]
    for name in within.split(".") if within else ():
        fitting = [
            x for x in _body(nodes[-1]) if isinstance(x, cst.ClassDef | cst.FunctionDef) and x.name.value == name
        ]
        if len(fitting) != 1:
            raise AnchorError(f"{len(fitting)} definitions of {name!r} (of {within!r})")
        nodes.append(fitting[0])
    return nodes


def _body(node: Any) -> Sequence[Any]:
    body: Sequence[Any] = node.body if isinstance(node, cst.Module) else node.body.body
    return body


def _with_body(node: Any, body: Sequence[Any]) -> Any:
    return node.with_changes(body=body if isinstance(node, cst.Module) else node.body.with_changes(body=body))


@lru_cache(maxsize=4096)
def _code(statement: cst.CSTNode) -> str:
    return _EMPTY.code_for_node(statement)


def change(text: str, within: str, edit: Callable[[Any], Any]) -> str:
    """Return the text with one class or function (or the module) changed; None deletes it."""
    *outer, target = _path(parsed(text), within)
    new = edit(target)
    if new is target:
        raise AnchorError(f"nothing changed in {within!r}")
    old = target
    for node in reversed(outer):
        body = [new if x is old else x for x in _body(node) if x is not old or new is not None]
        old, new = node, _with_body(node, body or [cst.SimpleStatementLine([cst.Pass()])])
    # Statement by statement: writing is what takes longest, and all but one are as they were.
    header = _EMPTY.code_for_node(new.with_changes(body=(), footer=()))
    return header + "".join(map(_code, new.body)) + "".join(map(_EMPTY.code_for_node, new.footer))


class _Expressions(cst.CSTTransformer):
    """Replaces expressions, arguments and parameters that are written like one given."""

    def __init__(self, old: cst.CSTNode, new: cst.CSTNode) -> None:
        super().__init__()
        self.kind, self.text, self.new, self.count = type(old), written(old), new, 0

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        if type(original_node) is self.kind and written(original_node) == self.text:
            self.count += 1
            return self.new.deep_clone()
        return updated_node


class _Statements(cst.CSTTransformer):
    """Replaces runs of statements."""

    def __init__(self, old: Sequence[cst.CSTNode], new: Sequence[cst.CSTNode]) -> None:
        super().__init__()
        self.texts, self.new, self.count = [written(x) for x in old], new, 0

    def _body(self, body: Sequence[Any]) -> Sequence[Any]:
        out: list[Any] = []
        index, length = 0, len(self.texts)
        while index < len(body):
            if [written(x) for x in body[index : index + length]] == self.texts:
                self.count += 1
                out += [x.deep_clone() for x in self.new]
                index += length
            else:
                out.append(body[index])
                index += 1
        return out

    def leave_IndentedBlock(self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock) -> Any:
        body = self._body(updated_node.body) or [cst.SimpleStatementLine([cst.Pass()])]
        return (
            updated_node
            if len(body) == len(updated_node.body) and not self.count
            else updated_node.with_changes(body=body)
        )

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> Any:
        return updated_node.with_changes(body=self._body(updated_node.body))


class _Names(cst.CSTTransformer):
    def __init__(self, old: str, new: str) -> None:
        super().__init__()
        self.old, self.new, self.count = old, new, 0

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
        if updated_node.value != self.old:
            return updated_node
        self.count += 1
        return updated_node.with_changes(value=self.new)


def _times(transformer: Any, node: Any, times: int | None, what: str) -> Any:
    new = node.visit(transformer)
    if transformer.count == 0 or (times is not None and transformer.count != times):
        raise AnchorError(f"{what!r} stands {transformer.count} times where {times or 'at least 1'} was expected")
    return new


@dataclass(frozen=True)
class Edit:
    """One change of one file.

    Args:
        path: file below the root of the tree.
        apply: old text -> new text; None deletes the file.
    """

    path: str
    apply: Callable[[str], str | None]


def swap(path: str, within: str, old: str, new: str, times: int | None = 1) -> Edit:
    """Replace an expression, or a run of statements, inside of a class or function (``""``: anywhere in the file).

    An empty ``new`` deletes statements.
    """

    def edit(node: Any) -> Any:
        before, after = _expression(old), _expression(new)
        if before is not None and after is not None:
            return _times(_Expressions(before, after), node, times, old)
        return _times(_Statements(_statements(old), _statements(new)), node, times, old)

    return Edit(path, lambda text: change(text, within, edit))


def line(path: str, within: str, old: str, new: str = "", times: int | None = 1) -> Edit:
    """Replace a run of statements, also where it could be read as an expression."""
    return Edit(
        path,
        lambda text: change(
            text, within, lambda node: _times(_Statements(_statements(old), _statements(new)), node, times, old)
        ),
    )


def rename(path: str, within: str, old: str, new: str) -> Edit:
    """Rename every use of a name, attributes and keywords included."""
    return Edit(path, lambda text: change(text, within, lambda node: _times(_Names(old, new), node, None, old)))


def define(path: str, within: str, code: str) -> Edit:
    """Replace a whole class or function; an empty text deletes it."""
    new = _statements(code)

    def edit(node: Any) -> Any:
        return new[0].with_changes(leading_lines=node.leading_lines) if new else None

    return Edit(path, lambda text: change(text, within, edit))


def add(path: str, within: str, code: str, first: bool = False) -> Edit:
    """Add statements at the end (or the beginning, behind docstring and imports from the future) of a body."""

    def edit(node: Any) -> Any:
        body = list(_body(node))
        place = len(body)
        if first:
            place = 0
            while place < len(body) and re.match(r'("""|from__future__)', written(body[place])):
                place += 1
        body[place:place] = _statements(code)
        return _with_body(node, body)

    return Edit(path, lambda text: change(text, within, edit))


def signature(path: str, within: str, header: str) -> Edit:
    """Give a function other parameters: ``def f(a, b) -> int``."""
    function = cst.ensure_type(_statements(header + ": ...")[0], cst.FunctionDef)
    return Edit(path, lambda text: change(text, within, lambda node: node.with_changes(params=function.params)))


def decorate(path: str, within: str, *decorators: str) -> Edit:
    """Put these decorators in the place of a function's or class's own."""
    new = [cst.Decorator(cst.parse_expression(code)) for code in decorators]
    return Edit(path, lambda text: change(text, within, lambda node: node.with_changes(decorators=new)))


def bases(path: str, within: str, *names: str) -> Edit:
    """Give a class other bases."""
    new = [cst.Arg(cst.parse_expression(code)) for code in names]
    return Edit(path, lambda text: change(text, within, lambda node: node.with_changes(bases=new)))


def _calls(node: Any, called: str) -> Iterator[cst.Call]:
    for child in node.children:
        yield from _calls(child, called)
    if isinstance(node, cst.Call) and written(node.func) == called:
        yield node


def _argument(
    path: str, within: str, called: str, edit: Callable[[list[cst.Arg]], list[cst.Arg]], name: str = ""
) -> Edit:
    def whole(node: Any) -> Any:
        found = [call for call in _calls(node, called) if not name or name in map(_named, call.args)]
        if len(found) != 1:
            raise AnchorError(f"{len(found)} calls of {called!r} in {within!r}")
        return node.deep_replace(found[0], found[0].with_changes(args=edit(list(found[0].args))))

    return Edit(path, lambda text: change(text, within, whole))


def _named(arg: cst.Arg) -> str:
    return "" if arg.keyword is None else arg.keyword.value


def _keyword(args: list[cst.Arg], name: str) -> int:
    places = [i for i, arg in enumerate(args) if _named(arg) == name]
    if len(places) != 1:
        raise AnchorError(f"{len(places)} arguments {name!r}")
    return places[0]


def drop_argument(path: str, within: str, called: str, name: str) -> Edit:
    """Leave a keyword argument of the only such call out."""

    def edit(args: list[cst.Arg]) -> list[cst.Arg]:
        del args[_keyword(args, name)]
        return args

    return _argument(path, within, called, edit, name)


def argument(path: str, within: str, called: str, name: str, code: str) -> Edit:
    """Give a keyword argument of the only such call another value."""

    def edit(args: list[cst.Arg]) -> list[cst.Arg]:
        place = _keyword(args, name)
        args[place] = args[place].with_changes(value=cst.parse_expression(code))
        return args

    return _argument(path, within, called, edit, name)


def add_argument(path: str, within: str, called: str, code: str) -> Edit:
    """Add arguments to the only such call."""
    new = list(cst.ensure_type(cst.parse_expression(f"f({code})"), cst.Call).args)
    return _argument(path, within, called, lambda args: [*args, *new])


def text(path: str, old: str, new: str, times: int = 1) -> Edit:
    """Replace text that is no Python: shell, YAML, TOML, a patch."""

    def edit(content: str) -> str:
        if content.count(old) != times:
            raise AnchorError(f"{old!r} stands {content.count(old)} times where {times} was expected")
        return content.replace(old, new)

    return Edit(path, edit)


def delete(path: str) -> Edit:
    """Leave a file out."""
    return Edit(path, lambda content: None)


def move(path: str, target: str) -> tuple[Edit, Edit]:
    """Give a file another name: what is deleted, what is added (`tree` hands the text over)."""
    return Edit(path, lambda content: None), Edit(f"{path} -> {target}", lambda content: content)
