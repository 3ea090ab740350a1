"""What a module builds in its methods: sub-modules, parameters, elements of containers.

Helper functions, local lists that a loop fills, and registries of the tree are followed. A container element that the
text does not tell is ``unknown``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from scaffold.check.model.calls import attribute_name, follow, resolve, returned
from scaffold.check.model.python import ClassModel, FunctionModel, PythonFile

INDEX = "{n}"
_COPIES = ("copy.deepcopy", "copy.copy")
_LISTS = ("torch.nn.ModuleList", "torch.nn.Sequential")
_DICTIONARY = "torch.nn.ModuleDict"
_PAIRS = ("dict", "collections.OrderedDict")
_DEEPEST = 8


class Built(NamedTuple):
    """What an expression builds.

    Attributes:
        file: where it stands.
        call: the call that builds it; None where the text shows none.
        path: names below the attribute, of the containers that it lies in: ``("net", "{n}")``.
        cls: its class, where that is of the tree.
        qualified: dotted name of its class, where that resolves (``torch.nn.Linear``).
    """

    file: PythonFile
    call: ast.Call | None
    path: tuple[str, ...]
    cls: ClassModel | None = None
    qualified: str | None = None

    @property
    def is_container(self) -> bool:
        """Whether it is a list or a dictionary of modules."""
        return self.qualified in (*_LISTS, _DICTIONARY)


class Submodule:
    """A module that a class builds in one of its methods.

    Attributes:
        owner: the class that builds it.
        name: the attribute it is kept under.
        node: the attribute's target in ``self.name = …``, or the call that adds to it.
        built: what it is.
        repeated: it is an element of a container, perhaps one of many.
        unknown: it is an element of a container, and the text does not say what it is.
    """

    def __init__(self, owner: ClassModel, name: str, node: ast.AST, built: Built) -> None:
        self.owner, self.name, self.node, self.built = owner, name, node, built
        self.file, self.call, self.cls, self.qualified = built.file, built.call, built.cls, built.qualified
        self.repeated, self.unknown = bool(built.path), built.call is None


def submodules(cls: ClassModel) -> list[Submodule]:
    """Return the objects that a class builds by calls and assigns to ``self.name``; container elements one by one.

    Parameters and other objects count too; the caller tells them by ``qualified``.
    """
    # Trees with one text share its nodes, and what a name stands for differs between them.
    known = cls.file.project.submodules
    if cls not in known:
        known[cls] = _submodules(cls)
    return known[cls]


def _submodules(cls: ClassModel) -> list[Submodule]:
    found = []
    for owner in cls.mro:
        for name, assignments in owner.own_instance_attributes.items():
            for assigned in assignments:
                if assigned.value is not None:
                    reader = _Reader(owner.file, cls)
                    found += [Submodule(owner, name, assigned.node, b) for b in reader.built(assigned.value, (), 0)]
        for method in owner.methods.values():
            for name, node, built in _added(method, cls):
                found.append(Submodule(owner, name, node, built))
    return found


def module_tree(cls: ClassModel) -> list[Submodule]:
    """Return what a module builds and what that builds in turn, each class of the tree once."""
    found: list[Submodule] = []
    seen = {cls}
    pending = [cls]
    while pending:
        for built in submodules(pending.pop(0)):
            if not built.built.is_container:
                found.append(built)
            if built.cls is not None and built.cls not in seen:
                seen.add(built.cls)
                pending.append(built.cls)
    return found


def _added(method: FunctionModel, cls: ClassModel) -> Iterator[tuple[str, ast.AST, Built]]:
    """Yield what a method puts into containers of the class: ``self.blocks.append(…)``, ``self.blocks[k] = …``."""
    reader = _Reader(method.file, cls)
    for call, named, made in adders(method):
        for name in texts_of(method.file, named) or ():
            for built in reader.built(made, (), 0):
                yield name, call, built
    for holder, node, items in _puts(method.file, method.node):
        if isinstance(holder, ast.Attribute) and isinstance(holder.value, ast.Name) and holder.value.id == method.bound:
            for assigned in cls.instance_attributes(holder.attr):
                value = assigned.value
                if isinstance(value, ast.Call) and assigned.file.qualified(value.func) in (*_LISTS, _DICTIONARY):
                    for built in reader.put(items, (), 0):
                        yield holder.attr, node, built
                    break


def adders(method: FunctionModel) -> Iterator[tuple[ast.Call, ast.expr, ast.expr]]:
    """Yield the calls that put something under a name into ``self``: ``setattr(self, …)``, ``self.add_module(…)``."""
    for call in method.calls:
        name = attribute_name(call)
        if name == "setattr" and len(call.args) == 3 and _is_self(call.args[0], method):
            yield call, call.args[1], call.args[2]
        elif name in ("add_module", "register_module") and len(call.args) == 2 and isinstance(call.func, ast.Attribute):
            if _is_self(call.func.value, method):
                yield call, call.args[0], call.args[1]


def _is_self(node: ast.expr, method: FunctionModel) -> bool:
    return isinstance(node, ast.Name) and node.id == method.bound


def texts_of(file: PythonFile, value: ast.expr) -> list[str] | None:
    """Return the strings that an expression takes: one for each turn of a loop over literals whose variable it is."""
    plain = file.value(value)
    if isinstance(plain, str):
        return [plain]
    names = [node.id for node in ast.walk(value) if isinstance(node, ast.Name)]
    if len(set(names)) != 1 or not isinstance(value, (ast.Name, ast.JoinedStr)):
        return None
    for loop in file.index.ancestors(value):
        if isinstance(loop, ast.For):
            targets = loop.target.elts if isinstance(loop.target, ast.Tuple) else [loop.target]
            at = next((i for i, node in enumerate(targets) if isinstance(node, ast.Name) and node.id == names[0]), None)
            if at is None:
                continue
            items = loop.iter.elts if isinstance(loop.iter, (ast.Tuple, ast.List)) else []
            parts = [i.elts[at] if isinstance(i, ast.Tuple) and len(i.elts) > at else i for i in items]
            column = parts if isinstance(loop.target, ast.Tuple) else items
            turns = [file.value(item) for item in column]
            if not turns or not all(isinstance(turn, (str, int)) for turn in turns):
                return None
            return [_filled(value, turn) for turn in turns]
    return None


def _filled(value: ast.expr, turn: object) -> str:
    if isinstance(value, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else str(turn) for part in value.values)
    return str(turn)


# An addition to a container: values of a list, entries of a mapping, or one value under a name (None: in a list).
Put = tuple[str, ast.expr, ast.expr | None]


def _puts(file: PythonFile, around: ast.AST) -> Iterator[tuple[ast.expr, ast.AST, Put]]:
    """Yield (container, statement, what is put into it)."""
    for call in file.index.nodes(ast.Call, around):
        if isinstance(call.func, ast.Attribute) and call.args:
            name, holder = call.func.attr, call.func.value
            if name == "append":
                yield holder, call, ("one", call.args[0], None)
            elif name in ("insert", "add_module") and len(call.args) == 2:
                yield holder, call, ("one", call.args[1], call.args[0] if name == "add_module" else None)
            elif name in ("extend", "update"):
                yield holder, call, (name, call.args[0], None)
    for part in file.index.nodes(ast.Subscript, around):
        statement = file.index.parent(part)
        if isinstance(part.ctx, ast.Store) and isinstance(statement, ast.Assign):
            yield part.value, part, ("one", statement.value, part.slice)
    for change in file.index.nodes(ast.AugAssign, around):
        if isinstance(change.op, ast.Add):
            yield change.target, change, ("extend", change.value, None)


class _Reader:
    """Reads what expressions of a file build; ``cls`` is what ``self`` is."""

    def __init__(self, file: PythonFile, cls: ClassModel) -> None:
        self._file, self._cls = file, cls

    def built(self, value: ast.expr, path: tuple[str, ...], hops: int) -> Iterator[Built]:
        """Yield what an expression builds."""
        file = self._file
        if hops > _DEEPEST:
            yield Built(file, None, path)
            return
        name, value = value, _original(file, value)
        if isinstance(value, (ast.IfExp, ast.BoolOp)):
            for arm in (value.body, value.orelse) if isinstance(value, ast.IfExp) else value.values:
                yield from self.built(arm, path, hops + 1)
        elif isinstance(value, ast.Call):
            yield from self._call(value, path, hops)
            if isinstance(name, ast.Name):
                for items in self._local(name):
                    yield from self.put(items, path, hops + 1)
        elif path and not isinstance(value, ast.Constant):
            yield Built(file, None, path)

    def put(self, items: Put, path: tuple[str, ...], hops: int) -> Iterator[Built]:
        """Yield what is put into a container at ``path``."""
        kind, value, key = items
        if kind == "extend":
            yield from self._elements(value, path, hops)
        elif kind == "update":
            yield from self._entries(value, path, hops)
        else:
            yield from self._entry(key, value, path, hops)

    def _call(self, call: ast.Call, path: tuple[str, ...], hops: int) -> Iterator[Built]:
        file, name = self._file, self._file.qualified(call.func)
        if name in _LISTS or name == _DICTIONARY:
            yield Built(file, call, path, None, name)
            for item in call.args:
                if name == "torch.nn.Sequential" and not isinstance(item, ast.Starred) and not self._is_pairs(item):
                    yield from self.built(item, (*path, INDEX), hops + 1)
                elif name == _DICTIONARY or self._is_pairs(item):
                    yield from self._entries(item, path, hops + 1)
                else:
                    yield from self._elements(item, path, hops + 1)
            return
        called = file.project.class_of(file, call.func) or resolve(file, call, self._cls)
        if isinstance(called, ClassModel):
            yield Built(file, call, path, called, called.qualname)
            return
        if isinstance(called, FunctionModel):
            inner = _Reader(called.file, self._cls if called.cls in self._cls.mro else called.cls or self._cls)
            found = [b for value in returned(called) for b in inner.built(value, path, hops + 1)]
            if found:
                yield from found
                return
        registered = alternatives(file, call)
        for cls in registered:
            yield Built(file, call, path, cls, cls.qualname)
        if not registered:
            yield Built(file, None if path and (name is None or called is not None) else call, path, None, name)

    def _elements(self, value: ast.expr, path: tuple[str, ...], hops: int) -> Iterator[Built]:
        """Yield what the elements of a list build."""
        one = (*path, INDEX)
        inner = value.value if isinstance(value, ast.Starred) else value
        node = follow(self._file, inner)
        if hops > _DEEPEST:
            yield Built(self._file, None, one)
        elif isinstance(node, (ast.List, ast.Tuple)):
            for item in node.elts:
                if isinstance(item, ast.Starred):
                    yield from self._elements(item, path, hops + 1)
                else:
                    yield from self.built(item, one, hops + 1)
            for items in self._local(inner) if isinstance(inner, ast.Name) else ():
                yield from self.put(items, path, hops + 1)
        elif isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            yield from self.built(node.elt, one, hops + 1)
        elif isinstance(node, (ast.BinOp, ast.IfExp)):
            arms = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.body, node.orelse)
            times = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)
            for arm in arms:
                if not times or isinstance(arm, (ast.List, ast.Tuple)):
                    yield from self._elements(arm, path, hops + 1)
        elif isinstance(node, ast.Call) and self._file.qualified(node.func) in ("list", "tuple") and node.args:
            yield from self._elements(node.args[0], path, hops + 1)
        elif isinstance(node, ast.Call) and isinstance(called := resolve(self._file, node, self._cls), FunctionModel):
            reader = _Reader(called.file, self._cls)
            for result in returned(called):
                yield from reader._elements(result, path, hops + 1)
        else:
            yield Built(self._file, None, one)

    def _entries(self, value: ast.expr, path: tuple[str, ...], hops: int) -> Iterator[Built]:
        """Yield what the entries of a mapping build."""
        node = follow(self._file, value)
        if hops > _DEEPEST:
            yield Built(self._file, None, (*path, INDEX))
        elif isinstance(node, ast.Dict):
            for key, item in zip(node.keys, node.values, strict=True):
                if key is None:
                    yield from self._entries(item, path, hops + 1)
                else:
                    yield from self._entry(key, item, path, hops)
            for items in self._local(value) if isinstance(value, ast.Name) else ():
                yield from self.put(items, path, hops + 1)
        elif isinstance(node, ast.DictComp):
            names = self._file.value(node.generators[0].iter)
            plain = isinstance(node.key, ast.Name) and ast.unparse(node.generators[0].target) == node.key.id
            if plain and isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names):
                for name in names:
                    yield from self.built(node.value, (*path, name), hops + 1)
            else:
                yield Built(self._file, None, (*path, INDEX))
        elif isinstance(node, ast.Call) and self._is_pairs(node):
            for keyword in node.keywords:
                yield from self.built(keyword.value, (*path, keyword.arg or INDEX), hops + 1)
            for pairs in node.args:
                for pair in pairs.elts if isinstance(pairs, (ast.List, ast.Tuple)) else [pairs]:
                    if isinstance(pair, ast.Tuple) and len(pair.elts) == 2:
                        yield from self._entry(pair.elts[0], pair.elts[1], path, hops)
                    else:
                        yield Built(self._file, None, (*path, INDEX))
        elif isinstance(node, ast.Call) and isinstance(called := resolve(self._file, node, self._cls), FunctionModel):
            for result in returned(called):
                yield from _Reader(called.file, self._cls)._entries(result, path, hops + 1)
        elif not isinstance(node, ast.Constant):
            yield Built(self._file, None, (*path, INDEX))

    def _entry(self, key: ast.expr | None, value: ast.expr, path: tuple[str, ...], hops: int) -> Iterator[Built]:
        name = self._file.value(key) if key is not None else INDEX
        if isinstance(name, str):
            yield from self.built(value, (*path, name), hops + 1)
        else:
            yield Built(self._file, None, (*path, INDEX))

    def _is_pairs(self, node: ast.expr) -> bool:
        made = follow(self._file, node)
        return isinstance(made, ast.Call) and self._file.qualified(made.func) in _PAIRS

    def _local(self, name: ast.Name) -> Iterator[Put]:
        """Yield what the function around a name puts into the container that the name is."""
        around = self._file.function_around(name)
        for holder, _, items in _puts(self._file, around.node) if around is not None else ():
            if isinstance(holder, ast.Name) and holder.id == name.id:
                yield items


def _original(file: PythonFile, value: ast.expr) -> ast.expr:
    """Return what builds a module that stands under a local name, or is copied."""
    found = follow(file, value)
    while isinstance(found, ast.Call) and file.qualified(found.func) in _COPIES and len(found.args) == 1:
        found = follow(file, found.args[0])
    if isinstance(found, ast.Call) and attribute_name(found) in ("to", "requires_grad_", "eval", "train"):
        receiver = found.func.value if isinstance(found.func, ast.Attribute) else found
        found = follow(file, receiver) if isinstance(follow(file, receiver), ast.Call) else found
    return found


_HOPS = 6


def alternatives(file: PythonFile, call: ast.Call, hops: int = 0) -> list[ClassModel]:
    """Return the classes that a call may instantiate: ``BLOCKS[kind](…)`` or ``BLOCKS.build(kind)``.

    Empty where the text does not tell them.
    """
    if hops > _HOPS:
        return []
    method = _method(file, call.func)
    if method is not None:
        made = [follow(method.file, value) for value in returned(method)]
        found = [alternatives(method.file, value, hops + 1) for value in made if isinstance(value, ast.Call)]
        return list(dict.fromkeys(cls for some in found for cls in some)) if all(found) else []
    return _looked_up(file, follow(file, call.func), hops)


def _looked_up(file: PythonFile, value: ast.expr, hops: int) -> list[ClassModel]:
    if isinstance(value, ast.Subscript):
        return _classes(file, value.value, file.value(value.slice))
    if not isinstance(value, ast.Call) or hops > _HOPS:
        return []
    if (
        isinstance(value.func, ast.Attribute)
        and value.func.attr == "get"
        and (found := _classes(file, value.func.value))
    ):
        return found
    method = _method(file, value.func)
    results = [_looked_up(method.file, follow(method.file, v), hops + 1) for v in returned(method)] if method else []
    return list(dict.fromkeys(cls for some in results for cls in some)) if all(results) else []


def _method(file: PythonFile, function: ast.expr) -> FunctionModel | None:
    """Return a function of the tree, or a method of an instance that a module holds."""
    name = file.qualified(function)
    if name is None:
        return None
    found = file.project.function_named(name)
    if found is not None or not isinstance(function, ast.Attribute):
        return found
    holder = file.project.definition(file.qualified(function.value) or "")
    made = holder[1].value if holder is not None else None
    cls = holder[0].project.class_of(holder[0], made.func) if holder and isinstance(made, ast.Call) else None
    return cls.method(function.attr) if cls is not None else None


def _classes(file: PythonFile, table: ast.expr, key: object = None) -> list[ClassModel]:
    """Return the classes of a table: its literal values, and classes registered with it.

    With a known key, classes that a decorator registers under another key are left out.
    """
    name, where, value = _table(file, table)
    if where is None:
        return []
    written = list(value.values) if isinstance(value, ast.Dict) else []
    found = [where.project.class_of(where, item) for item in written]
    writers = [function for function in where.all_functions if _stores(function, name)]
    names = {writer.name for writer in writers}
    others = [where.project.python(path) for path in where.project.files(where.folder, ".py")] if writers else []
    for other in (file for file in others if file is not None):
        for cls in other.classes:
            made = [node.func if isinstance(node, ast.Call) else node for node in cls.node.decorator_list]
            calls = [node for node in cls.node.decorator_list if isinstance(node, ast.Call) and node.args]
            known = {word for node in calls if isinstance(word := other.value(node.args[0]), str)}
            if not (isinstance(key, str) and known and key not in known):
                found += [cls for node in made if _is_of(where, other.qualified(node), names)]
        for call in other.index.nodes(ast.Call):
            if _is_of(where, other.qualified(call.func), names):
                found += [named for item in call.args if (named := where.project.class_of(other, item))]
    for part in where.index.nodes(ast.Subscript):
        statement = where.index.parent(part)
        stored = isinstance(part.ctx, ast.Store) and isinstance(part.value, ast.Name) and part.value.id == name
        if stored and isinstance(statement, ast.Assign) and where.function_around(part) is None:
            found.append(where.project.class_of(where, statement.value))
    return [] if None in found else list(dict.fromkeys(cls for cls in found if cls is not None))


def _is_of(where: PythonFile, qualified: str | None, names: set[str]) -> bool:
    """Whether a dotted name is one of the functions of a file that fill the table."""
    found = qualified or ""
    return found.startswith(f"{where.module}.") and found.rpartition(".")[2] in names


def _table(file: PythonFile, table: ast.expr) -> tuple[str, PythonFile | None, ast.expr | None]:
    """Return name, file and value of a table: a variable of a module, or an attribute of a class."""
    around = file.function_around(table)
    if isinstance(table, ast.Attribute) and isinstance(table.value, ast.Name) and around is not None and around.cls:
        if table.value.id == around.bound:
            attributes = [around.cls.attribute(table.attr), *around.cls.instance_attributes(table.attr)]
            first = next((attribute for attribute in attributes if attribute is not None), None)
            return (table.attr, None, None) if first is None else (table.attr, first.file, first.value)
    found = file.project.definition(file.qualified(table) or "")
    if found is None or found[1].kind != "variable":
        return "", None, None
    return ending_of(table), found[0], found[1].value


def ending_of(node: ast.expr) -> str:
    """Return the last name of ``a.b.c``."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _stores(function: FunctionModel, table: str) -> bool:
    """Whether a function puts one of its parameters, or of a function in it, into a table."""
    for part in function.file.index.nodes(ast.Subscript, function.node):
        if isinstance(part.ctx, ast.Store) and ending_of(part.value) == table:
            return True
    return False
