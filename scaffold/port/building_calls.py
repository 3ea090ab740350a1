"""Calls in a pipeline's constructor as training makes them: no placement, no quantisation, sources as plain values."""

from __future__ import annotations

import ast
import copy
from typing import Any

from scaffold.port.names import Defined, External, Scope
from scaffold.port.slicing import CONFIG, UnclearError, arguments_of, following, name_of
from scaffold.source.syntax import is_docstring, keyword_of, walk_tree

SOURCES = "weights_sources"
_PLACING = ("to", "eval", "requires_grad_", "cuda", "train")
_DROPPED = ("quant_config", "prefix")
_FILLING = ("load_state_dict", "load_weights")
_FETCHES = "download"


class Maker(ast.NodeTransformer):
    """Rewrites the statements that make the denoiser and say where its weights are."""

    def __init__(self, scope: Scope, attribute: str, denoiser: Defined) -> None:
        self.scope, self.held, self.denoiser = scope, f"self.{attribute}", denoiser
        self.streamed = False
        self.filled = ""  # the method of the denoiser to which the pipeline hands weights

    def visit(self, node: ast.AST) -> Any:
        with following(node):
            return super().visit(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST | list[ast.stmt]:
        sources = self._folder(node)
        found = self.generic_visit(node)
        assert isinstance(found, ast.Assign)
        if ast.unparse(found.targets[0]) == self.held and ast.unparse(found.value) == self.held:
            return ast.Pass()  # it was moved, no more
        return [found, *sources]

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """``self.denoiser.load_state_dict(weights)`` or ``load_weights``: weights that the pipeline reads by itself."""
        call = node.value
        fills = {f"{self.held}.{name}": name for name in _FILLING}.get(ast.unparse(getattr(call, "func", call)))
        if isinstance(call, ast.Call) and fills and call.args:
            if self.filled:
                raise UnclearError("weights come twice")
            self.filled = fills
            given = self.visit(call.args[0])
            assert isinstance(given, ast.expr)
            if fills != _FILLING[0]:
                given = ast.Call(ast.Name("list", ast.Load()), [given], [])
            return self._sources(given)
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST:
        """A checkpoint lies in a folder: what only fetches one is left out."""
        if ast.unparse(node.test).startswith("not os.path.") and not node.orelse and len(node.body) == 1:
            asked = node.test.operand if isinstance(node.test, ast.UnaryOp) else None
            first = node.body[0]
            if isinstance(asked, ast.Call) and asked.args and isinstance(first, ast.Assign):
                if ast.unparse(asked.args[0]) == ast.unparse(first.targets[0]) and _FETCHES in ast.unparse(first):
                    return ast.Pass()
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Attribute) and node.func.attr in _PLACING:
            inner = node.func.value
            if isinstance(inner, ast.Call) or ast.unparse(inner) == self.held:
                found = self.visit(inner)
                assert isinstance(found, ast.AST)
                return found
        self.generic_visit(node)
        if self._reads_file(node):
            file = node.args[0] if node.args else keyword_of(node, "filename")
            if file is None:
                raise UnclearError("load_file")
            return ast.Call(ast.parse(f"{CONFIG}.load_file", mode="eval").body, [file], [])
        if ast.unparse(node.func).rpartition(".")[2] == "ComponentSource":
            given = {keyword.arg: keyword.value for keyword in node.keywords}
            if "prefix" not in given:
                raise UnclearError("prefix")
            self.streamed = True
            none = ast.Constant(None)
            parts = [given.get("subfolder", none), given["prefix"], given.get("allow_patterns_overrides", none)]
            return ast.Tuple(parts, ast.Load())
        if isinstance(node.func, ast.Name) and self.scope.origin(node.func.id) == self.denoiser:
            node.keywords = [keyword for keyword in node.keywords if keyword.arg not in _DROPPED]
        elif self._reads_folder(node):
            assert isinstance(node.func, ast.Attribute)
            owner, model = ast.unparse(node.func.value), ast.unparse(node.args[0])
            text = f"{owner}.from_config({owner}.load_config({model}, subfolder={_folder_of(node)}))"
            return ast.parse(text, mode="eval").body
        return node

    def _reads_file(self, node: ast.Call) -> bool:
        """Tell whether this is ``load_file`` of safetensors: the training module maps the file instead."""
        text = ast.unparse(node.func)
        origin = self.scope.origin(text) if text.isidentifier() else None
        path = origin.path if isinstance(origin, External) else text
        return path == "safetensors.torch.load_file"

    def _reads_folder(self, node: ast.expr) -> bool:
        """Tell whether this is ``Class.from_pretrained(model, subfolder=…)`` of diffusers."""
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return False
        owner = node.func.value
        return (
            node.func.attr == "from_pretrained"
            and isinstance(owner, ast.Name)
            and self.scope.origin(owner.id) == self.denoiser
        )

    def _folder(self, node: ast.Assign) -> list[ast.stmt]:
        """Return the sources of a denoiser that comes with its weights."""
        made = placed(node.value) if ast.unparse(node.targets[0]) == self.held else None
        if not isinstance(made, ast.Call) or not self._reads_folder(made):
            return []
        prefix = self.held.removeprefix("self.") + "."
        return [self._sources(ast.parse(f"[({_folder_of(made)}, {prefix!r}, None)]", mode="eval").body)]

    @staticmethod
    def _sources(value: ast.expr) -> ast.Assign:
        return ast.Assign([ast.parse(f"self.{SOURCES}", mode="eval").body], value)


def placed(node: ast.expr) -> ast.expr:
    """Return what ``x.to(…).eval()`` is called on."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _PLACING:
        node = node.func.value
    return node


def _folder_of(node: ast.Call) -> str:
    folder = keyword_of(node, "subfolder")
    if len(node.args) != 1 or folder is None:
        raise UnclearError("from_pretrained")
    return ast.unparse(folder)


class Plain(ast.NodeTransformer):
    """Turns attributes of ``self`` into local names."""

    def __init__(self, spelled: dict[str, str]) -> None:
        self.spelled = spelled

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        name = name_of(node)
        if name is not None and name.startswith("self."):
            if name not in self.spelled:
                raise UnclearError(name)
            return ast.copy_location(ast.Name(self.spelled[name], node.ctx), node)
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is None:
            return ast.Pass()
        return self.generic_visit(ast.Assign([node.target], node.value))


class Local(ast.NodeTransformer):
    """Functions of the pipeline's module that fetch a checkpoint raise there where it is not a folder.

    Attributes:
        functions: what they became, by name, to stand inside of the function that calls them.
    """

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.functions: dict[str, ast.FunctionDef] = {}

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        origin = self.scope.origin(node.func.id) if isinstance(node.func, ast.Name) else None
        if not isinstance(origin, Defined) or origin.module != self.scope.info.name:
            return node
        made = self.scope.info.definitions.get(origin.name)
        if not isinstance(made, ast.FunctionDef) or _FETCHES not in ast.unparse(made):
            return node
        function = without_fetching(copy.deepcopy(made))
        if any(_FETCHES in ast.unparse(part) for part in function.body):
            return node
        function.name = f"pipeline_{origin.name.lstrip('_')}"
        read = {inner.id for part in function.body for inner in walk_tree(part) if isinstance(inner, ast.Name)}
        given = {name: value for name, value in arguments_of(node, made, bound=False) if name in read}
        function.args = ast.arguments([], [ast.arg(name) for name in given], None, [], [], None, [])
        function.returns = None
        self.functions[function.name] = ast.fix_missing_locations(function)
        return ast.copy_location(ast.Call(ast.Name(function.name, ast.Load()), list(given.values()), []), node)


def without_fetching(function: ast.FunctionDef) -> ast.FunctionDef:
    """Return a function that raises where it would fetch a checkpoint that is not a folder."""
    for index, node in enumerate(function.body):
        first = node.body[0] if isinstance(node, ast.If) else None
        if isinstance(node, ast.If) and isinstance(first, ast.Return) and first.value is not None:
            folder = ast.unparse(first.value)
            there = (
                f"os.path.isdir({folder})",
                f"os.path.exists({folder})",
                f"{folder}.exists()",
                f"{folder}.is_dir()",
            )
            rest = function.body[index + 1 :]
            if ast.unparse(node.test) in there and _FETCHES in "".join(map(ast.unparse, rest)):
                function.body[index + 1 :] = ast.parse(f"raise FileNotFoundError({folder})").body
                break
    return ast.fix_missing_locations(function)


def without_file_checks(text: str) -> str:
    """Return a module without calls of functions that do nothing but raise where files are missing.

    What a checkpoint has to hold for the rollout, training may do without: the files that are read say so themselves.
    """
    tree = ast.parse(text)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    checks = {node.name for node in functions if _raises(node.body) and all(_only_checks(part) for part in node.body)}
    lines: list[str | None] = list(text.splitlines())
    dropped: set[str] = set()
    for node in ast.walk(tree):
        for block in (getattr(node, name, None) for name in ("body", "orelse", "finalbody")):
            for part in block if isinstance(block, list) and len(block) > 1 else []:
                call = part.value if isinstance(part, ast.Expr) else None
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in checks:
                    lines[part.lineno - 1 : part.end_lineno] = [None] * (part.end_lineno - part.lineno + 1)
                    dropped.add(call.func.id)
    kept = "\n".join(line for line in lines if line is not None)
    used = {node.id for node in ast.walk(ast.parse(kept)) if isinstance(node, ast.Name)}
    for function in functions:
        if function.name in dropped - used:
            first = min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])
            last = function.end_lineno or first
            lines[first - 1 : last] = [None] * (last - first + 1)
    return "\n".join(line for line in lines if line is not None) + "\n" if dropped else text


def _raises(body: list[ast.stmt]) -> bool:
    return any(isinstance(inner, ast.Raise) for node in body for inner in ast.walk(node))


def _only_checks(node: ast.stmt) -> bool:
    """Whether a statement computes local values, or raises that a file is missing."""
    if isinstance(node, ast.Assign):
        return all(isinstance(target, ast.Name) for target in node.targets)
    if isinstance(node, (ast.If, ast.For)):
        return all(_only_checks(inner) for inner in (*node.body, *node.orelse))
    if isinstance(node, ast.Raise):
        raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        return isinstance(raised, ast.Name) and raised.id == "FileNotFoundError"
    return is_docstring(node)
