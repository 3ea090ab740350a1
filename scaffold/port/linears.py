"""Where a ported module keeps its layers, and which linear layers LoRA can name in them; read from its text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from scaffold.port.layer_lists import made_by_number
from scaffold.source.syntax import is_own, lineage, walk_tree

# Linear layers that classes of libraries hold: a port imports these classes, so its text does not show them.
#
# Names are those of diffusers 0.38.0 to 0.40.0; a test makes each class and compares.

_ATTENTION = ("to_q", "to_k", "to_v", "to_out.0")
_ADDED = ("add_q_proj", "add_k_proj", "add_v_proj", "to_add_out")
_ADDS = "added_kv_proj_dim"

LINEARS: dict[str, tuple[str, ...]] = {
    "diffusers.models.attention_processor.Attention": _ATTENTION,
    "diffusers.models.attention.Attention": _ATTENTION,
    "diffusers.models.attention.FeedForward": ("net.0.proj", "net.2"),
    "diffusers.models.attention.AdaLayerNorm": ("linear",),
    "diffusers.models.normalization.AdaLayerNorm": ("linear",),
    "diffusers.models.normalization.FP32LayerNorm": (),
    "diffusers.models.embeddings.PixArtAlphaTextProjection": ("linear_1", "linear_2"),
    "diffusers.models.embeddings.SinusoidalPositionalEmbedding": (),
    "diffusers.models.embeddings.TimestepEmbedding": ("linear_1", "linear_2"),
    "diffusers.models.embeddings.Timesteps": (),
    "transformers.models.qwen2.modeling_qwen2.Qwen2RMSNorm": (),
}
# Modules of torch whose weights are not linear layers that LoRA could take the place of, or hold such.
_OF_TORCH = frozenset({"MultiheadAttention", "Transformer", "TransformerEncoder", "TransformerEncoderLayer",
                       "TransformerDecoder", "TransformerDecoderLayer", "Bilinear", "LSTM", "GRU", "RNN"})  # fmt: skip
# Endings of classes that are not modules.
_NO_MODULES = ("Config", "Output", "OutputWithPast", "Cache", "Mixin", "Path", "Dict", "Namespace", "Processor", "Norm")


def linears_of(origin: str, call: ast.Call | None = None) -> tuple[str, ...] | None:
    """Return the names of the linear layers of a library's class, from its own; None where that is not known.

    Args:
        origin: dotted name by which the text imports it.
        call: that makes one; some arguments add layers.
    """
    found = LINEARS.get(origin)
    if found is None:
        return None
    given = [keyword for keyword in call.keywords if keyword.arg == _ADDS] if call is not None else []
    added = any(not (isinstance(k.value, ast.Constant) and k.value.value is None) for k in given)
    return (*found, *_ADDED) if found == _ATTENTION and added else found


def may_hold_linears(origin: str) -> bool:
    """Whether a class that is not of the text may be a module with weights of its own that nobody has looked at."""
    library, _, name = origin.rpartition(".")
    if library == "torch.nn":
        return name in _OF_TORCH
    return library.startswith(("diffusers.", "transformers.")) and name[:1].isupper() and not name.endswith(_NO_MODULES)


ANY = "*"  # stands for an index or a key that only the configuration knows
_LISTS = ("ModuleList", "Sequential", "ModuleDict")
_DEPTH = 12
# Torch's own layers that LoRA takes beside linear ones: their updates are not products of two matrices.
_TAKEN = frozenset({"Conv1d", "Conv2d", "Conv3d", "Embedding"})
_OTHER = ""  # in place of the class of a module that is not a linear layer


@dataclass(frozen=True)
class Layout:
    """Names of modules, from the denoiser's.

    Attributes:
        lists: dotted names of the lists that hold layers, in the order of the text.
        targets: shortest ends of the linear layers' names that fit no linear layer outside of the lists, and no module
            of another kind: LoRA takes some with updates that are not products of two matrices, and refuses the rest.
        unnamed: names of the linear layers in the lists that no target names: each end fits one outside, too.
        linears: names of the linear layers in the lists, with ``ANY`` for what only the configuration knows.
        outside: names of those that are in no list.
        unread: classes of libraries in the layers, of which it is not known which linear layers they hold.
        uncalled: names of the linear layers in the lists that nothing calls, or of which the module reads the weights
            in place of a call: no target names them, because LoRA there would do nothing.
    """

    lists: tuple[str, ...]
    targets: tuple[str, ...]
    unnamed: tuple[tuple[str, ...], ...] = ()
    linears: tuple[tuple[str, ...], ...] = ()
    outside: tuple[tuple[str, ...], ...] = ()
    unread: tuple[str, ...] = ()
    uncalled: tuple[tuple[str, ...], ...] = ()


def find_layout(source: str, entry: str, layer_classes: tuple[str, ...]) -> Layout:
    """Return lists of layers and LoRA targets of a ported module.

    Args:
        source: text of the module.
        entry: class of the denoiser in it.
        layer_classes: classes that FSDP wraps.
    """
    reader = _Reader(source)
    lists: dict[str, None] = {}
    inside: dict[tuple[str, ...], tuple[str, ...]] = {}
    whole: dict[tuple[str, ...], None] = {}
    outside: set[tuple[str, ...]] = set()
    others: set[tuple[str, ...]] = set()
    uncalled: dict[tuple[str, ...], None] = {}
    for path, linear, holder in reader.walk(entry, frozenset(layer_classes)):
        if linear is None:
            others.add(path)
            continue
        if holder is not None:
            lists[".".join(path[:holder])] = None
        if linear and holder is None:
            outside.add(path)
        elif linear and holder is not None:
            whole[path] = None
            if path in reader.uncalled:
                uncalled[path] = None
            else:
                inside.setdefault(path[holder + 1 :], path)
    targets = {whole: _shortest(path, outside | others | uncalled.keys()) for path, whole in inside.items()}
    named = tuple(dict.fromkeys(target for target in targets.values() if target is not None))
    unnamed = tuple(path for path, target in targets.items() if target is None)
    unread = tuple(sorted(reader.unread))
    return Layout(tuple(lists), named, unnamed, tuple(whole), tuple(sorted(outside)), unread, tuple(uncalled))


def _shortest(path: tuple[str, ...], outside: set[tuple[str, ...]]) -> str | None:
    """Return the shortest end of a name that ends no name outside; None where an unknown index is in the way."""
    for length in range(1, len(path) + 1):
        end = path[-length:]
        if ANY in end:
            return None
        if end[0].isdigit() or any(_fits(other[-length:], end) for other in outside):
            continue
        return ".".join(end)
    return None


def _fits(name: tuple[str, ...], end: tuple[str, ...]) -> bool:
    return len(name) == len(end) and all(a in (b, ANY) for a, b in zip(name, end, strict=True))


@dataclass(frozen=True)
class _Child:
    path: tuple[str, ...]
    name: str  # class of the text, "Linear", or the dotted name of a library's class
    listed: bool


class _Reader:
    """Follows ``self.name = Class(…)`` from class to class."""

    def __init__(self, source: str) -> None:
        tree = ast.parse(source)
        self.classes = {node.name: node for node in walk_tree(tree) if isinstance(node, ast.ClassDef)}
        self.imported = {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in tree.body
            if isinstance(node, ast.ImportFrom) and node.module and not node.level
            for alias in node.names
        }
        self.unread: set[str] = set()
        self.uncalled: set[tuple[str, ...]] = set()
        self._read = read_weights(tree)
        self._reached = Reached(tree)

    def walk(
        self,
        name: str,
        layers: frozenset[str],
        path: tuple[str, ...] = (),
        holder: int | None = None,
        depth: int = 0,
        idle: bool = False,
    ) -> Iterator[tuple[tuple[str, ...], bool | None, int | None]]:
        """Yield path, whether it is a linear layer, and the length of the path of the list of layers around it.

        None in place of the second is a module of another kind.
        """
        if depth > _DEPTH:
            return
        for child in self.children(name):
            below = (*path, *child.path)
            inner, unasked = holder, idle or not self._may_be_called(name, child)
            if inner is None and child.listed and child.name in layers:
                inner = len(below) - 1
                yield below, False, inner
            if child.name == "Linear":
                if unasked or any(child.path in self._read.get(o.name, ()) for o in lineage(self.classes, name)):
                    self.uncalled.add(below)
                yield below, True, inner
                continue
            # Inside the lists a layer may be another one where a setting says so, in the place of a linear one.
            if below[-1] != ANY and (inner is None or child.name in _TAKEN):
                yield below, None, inner
            if "." in child.name:
                if inner is not None:
                    self.unread.add(child.name)
            else:
                yield from self.walk(child.name, layers, below, inner, depth + 1, unasked)

    def _may_be_called(self, owner: str, child: _Child) -> bool:
        first = child.path[0] if child.path else ANY
        return not first.isidentifier() or self._reached.has(owner, first)

    def children(self, name: str) -> Iterator[_Child]:
        """Yield the modules that an object of a class holds, those of its bases first."""
        node = self.classes.get(name)
        if node is None:
            return
        for base in node.bases:
            if isinstance(base, ast.Name) and base.id != name:
                yield from self.children(base.id)
                for linear in linears_of(self.imported.get(base.id, "")) or ():
                    yield _Child(tuple(linear.split(".")), "Linear", False)
        entries = _entries(node)
        for found in walk_tree(node):
            if isinstance(found, (ast.Assign, ast.AnnAssign)) and found.value is not None:
                targets = found.targets if isinstance(found, ast.Assign) else [found.target]
                numbered = made_by_number(found.value)
                for target in targets:
                    if numbered is not None:
                        last = target.elts[-1] if isinstance(target, ast.Tuple) else target
                        if is_own(last):
                            yield from self._held((last.attr, ANY), numbered, True)
                    elif is_own(target):
                        yield from self._held((target.attr,), found.value, False)
                        for entry in entries.get(_listed_name(found.value), ()):
                            yield from self._held((target.attr, ANY), entry, True)
            elif isinstance(found, ast.Call) and isinstance(found.func, ast.Attribute):
                yield from self._called(node, found, found.func)

    def _called(self, node: ast.ClassDef, call: ast.Call, func: ast.Attribute) -> Iterator[_Child]:
        """``self.layers.append(Layer())``, and ``super().__init__(Layer() for …)`` of a list."""
        if func.attr == "append" and is_own(func.value) and len(call.args) == 1:
            yield from self._held((func.value.attr, ANY), call.args[0], True)
        above = isinstance(func.value, ast.Call) and getattr(func.value.func, "id", "") == "super"
        if above and func.attr == "__init__" and any(_last(base) in _LISTS for base in node.bases):
            for argument in call.args:
                yield from self._items((), argument)

    def _held(self, path: tuple[str, ...], value: ast.expr, listed: bool) -> Iterator[_Child]:
        if isinstance(value, ast.IfExp):
            yield from self._held(path, value.body, listed)
            yield from self._held(path, value.orelse, listed)
            return
        if not isinstance(value, ast.Call):
            return
        name = _last(value.func)
        if name == "Linear" or self._is_linear(name):
            yield _Child(path, "Linear", listed)
        elif name in self.classes or name in _TAKEN:
            yield _Child(path, name, listed)
        elif (origin := self._origin(value.func, name)) is not None:
            known = linears_of(origin, value)
            if known is None and may_hold_linears(origin):
                yield _Child(path, origin, listed)
            for linear in known or ():
                yield _Child((*path, *linear.split(".")), "Linear", listed)
            if not known:
                yield _Child(path, _OTHER, listed)
        elif name == "Sequential":
            yield _Child(path, _OTHER, listed)
            for index, argument in enumerate(value.args):
                yield from self._held((*path, str(index)), argument, True)
        elif name in _LISTS:
            yield _Child(path, _OTHER, listed)
            for argument in value.args:
                yield from self._items(path, argument)
        elif isinstance(value.func, ast.Attribute) and ast.unparse(value.func.value) == "nn" and name[:1].isupper():
            yield _Child(path, _OTHER, listed)

    def _origin(self, func: ast.expr, name: str) -> str | None:
        """Dotted name of a library's class; None for what torch itself makes lists of, and for anything else."""
        if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id == "nn":
            return f"torch.nn.{name}" if may_hold_linears(f"torch.nn.{name}") else None
        return self.imported.get(name) if name[:1].isupper() and name not in _LISTS else None

    def _items(self, path: tuple[str, ...], value: ast.expr) -> Iterator[_Child]:
        if isinstance(value, (ast.List, ast.Tuple)):
            for index, item in enumerate(value.elts):
                yield from self._held((*path, str(index)), item, True)
        elif isinstance(value, (ast.ListComp, ast.GeneratorExp)):
            yield from self._held((*path, ANY), value.elt, True)
        elif isinstance(value, ast.Dict):
            for key, item in zip(value.keys, value.values, strict=True):
                known = isinstance(key, ast.Constant) and isinstance(key.value, str)
                yield from self._held((*path, key.value if known else ANY), item, True)  # type: ignore[union-attr]
        elif isinstance(value, ast.DictComp):
            yield from self._held((*path, ANY), value.value, True)

    def _is_linear(self, name: str) -> bool:
        node = self.classes.get(name)
        return node is not None and any(_last(base) == "Linear" for base in node.bases)


def _listed_name(value: ast.expr) -> str:
    """Name of the variable of which a list of modules is made; empty where it is made of something else."""
    made = isinstance(value, ast.Call) and _last(value.func) in _LISTS and len(value.args) == 1
    return getattr(value.args[0], "id", "") if made else ""  # type: ignore[attr-defined]


def _entries(node: ast.ClassDef) -> dict[str, list[ast.expr]]:
    """What is put into each variable that is a table, ``table[key] = value``, in the methods of a class."""
    found: dict[str, list[ast.expr]] = {}
    named: dict[str, ast.expr] = {}
    for item in walk_tree(node):
        if isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name):
            named[item.targets[0].id] = item.value
        elif isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Subscript):
            table = item.targets[0].value
            if isinstance(table, ast.Name):
                found.setdefault(table.id, []).append(item.value)
    return {
        name: [named.get(value.id, value) if isinstance(value, ast.Name) else value for value in values]
        for name, values in found.items()
    }


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


# Linear layers on which LoRA would do nothing: a module computes with their weight, or asks for them nowhere.

Path = tuple[str, ...]
# What is asked of a weight without its values.
_ABOUT = frozenset({"dtype", "device", "shape", "ndim", "is_meta", "size", "numel", "requires_grad"})

_LOADER = "load_weights"
# Ways to all modules at once: whoever goes one may call any of them.
_ALL = frozenset({"children", "modules", "named_children", "named_modules", "_modules", "__dict__", "get_submodule"})


class _Read(NamedTuple):
    """The weight of what lies at ``path`` inside of what a name holds."""

    root: str
    path: Path


def read_weights(tree: ast.Module) -> dict[str, set[Path]]:
    """Return, by class, the paths of the layers inside of it whose weights its methods read.

    A function of the module that reads the weight of what it is given counts for whoever calls it.

    Args:
        tree: the module.
    """
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    known: dict[str, set[_Read]] = {name: set() for name in functions}
    while True:
        found = {name: set(_reads(node, functions, known)) for name, node in functions.items()}
        if found == known:
            break
        known = found
    return {
        node.name: {read.path for read in _reads(node, functions, known) if read.root == "self" and read.path}
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }


def _reads(owner: ast.AST, functions: dict[str, ast.FunctionDef], known: dict[str, set[_Read]]) -> Iterator[_Read]:
    asked = {id(node.value) for node in walk_tree(owner) if isinstance(node, ast.Attribute) and node.attr in _ABOUT}
    for node in walk_tree(owner):
        if isinstance(node, ast.Attribute) and node.attr == "weight" and id(node) not in asked:
            if isinstance(node.ctx, ast.Load) and (held := _place(node.value)) is not None:
                yield held
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in functions:
            names = [argument.arg for argument in functions[node.func.id].args.args]
            given = dict(zip(names, node.args, strict=False))
            given |= {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg is not None}
            for read in known[node.func.id]:
                held = _place(given[read.root]) if read.root in given else None
                if held is not None:
                    yield _Read(held.root, (*held.path, *read.path))


def _place(node: ast.expr) -> _Read | None:
    """``a.b[1]`` as a name and a path; None for anything else."""
    path: list[str] = []
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute):
            path.insert(0, node.attr)
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            path.insert(0, str(node.slice.value))
        else:
            return None
        node = node.value
    return _Read(node.id, tuple(path))


class Reached:
    """Which attributes of its classes a module's text reads.

    Args:
        tree: the module, of which every method can be called.
    """

    def __init__(self, tree: ast.Module) -> None:
        self._classes = {node.name: node for node in walk_tree(tree) if isinstance(node, ast.ClassDef)}
        self._imported = {
            alias.asname or alias.name
            for node in tree.body
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for alias in node.names
        }
        # Where a person still has to write something, that may ask for anything.
        self._left = any(_is_left(inner) for node in tree.body for inner in walk_tree(node))
        self._own: dict[str, set[str]] = {}
        self._anywhere: set[str] = set()
        for node in tree.body:
            reads = list(_asked(node))
            self._own[getattr(node, "name", "")] = {name for name, own in reads if own}
            self._anywhere |= {name for name, own in reads if not own or not isinstance(node, ast.ClassDef)}

    def has(self, owner: str, attribute: str) -> bool:
        """Tell whether an attribute of a class may be read: by the class, by one above or below it, or from outside.

        A class that derives from a library's may be read there; of one that is only built nothing is known.
        """
        above = lineage(self._classes, owner)
        silent = not any(
            isinstance(inner, ast.FunctionDef) and inner.name != "__init__" for c in above for inner in c.body
        )
        if self._left or silent or attribute in self._anywhere or any(self._foreign(node) for node in above):
            return True
        family = {node.name for node in above}
        family |= {name for name in self._classes if owner in {node.name for node in lineage(self._classes, name)}}
        return any({attribute, *_ALL} & self._own.get(name, set()) for name in family)

    def _foreign(self, node: ast.ClassDef) -> bool:
        return any(isinstance(base, ast.Name) and base.id in self._imported for base in node.bases)


def _is_left(node: ast.AST) -> bool:
    """Tell whether this is the statement in place of one that has no counterpart."""
    call = node.exc if isinstance(node, ast.Raise) else None
    given = call.args[0] if isinstance(call, ast.Call) and call.args else None
    return isinstance(given, ast.Constant) and ast.unparse(call.func) == "NotImplementedError"  # type: ignore[union-attr]


def _asked(tree: ast.stmt) -> Iterator[tuple[str, bool]]:
    """Yield the names of attributes that are read, and whether of ``self``; a text may be the name of one, too."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef) and node.name == _LOADER:
            continue
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.attr, is_own(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value, False
        pending += ast.iter_child_nodes(node)


# Which parameters of a module's constructor say how many layers there are, so that a small one can be built.

_COUNT = re.compile(r"(num|n)_(\w+_)?layers|depth|\w+_depth")


def layer_counts(source: str, entry: str) -> tuple[str, ...]:
    """Return parameters that count layers; empty where the class cannot be built from defaults alone.

    Args:
        source: text of the ported module.
        entry: class of the denoiser in it.
    """
    classes = {node.name: node for node in walk_tree(ast.parse(source)) if isinstance(node, ast.ClassDef)}
    for node in lineage(classes, entry):
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                return _counts(method.args)
    return ()


def _counts(arguments: ast.arguments) -> tuple[str, ...]:
    positional = arguments.args[1:]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    pairs = [*zip(positional, [*defaults, *arguments.defaults], strict=False)]
    pairs += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    if any(default is None or "config" in argument.arg for argument, default in pairs):
        return ()
    return tuple(
        argument.arg
        for argument, default in pairs
        if _COUNT.fullmatch(argument.arg) and isinstance(default, ast.Constant) and type(default.value) is int
    )
