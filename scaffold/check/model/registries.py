"""Registries of classes in the tree: tables that are written out, or filled by a decorator."""

from __future__ import annotations

import ast

from scaffold.check.model.classes import ClassModel
from scaffold.check.model.follow import follow, returned
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.pyfile import PythonFile

_DEEPEST = 6


def alternatives(file: PythonFile, call: ast.Call, hops: int = 0) -> list[ClassModel]:
    """Return the classes one of which a call makes, ``BLOCKS[kind](…)`` or ``BLOCKS.build(kind)``.

    Empty where the tables are not plain.
    """
    if hops > _DEEPEST:
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
    if not isinstance(value, ast.Call) or hops > _DEEPEST:
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
    """Return the classes of a table: the values that are written down, and what is registered with it.

    With a key that the text gives, classes that a decorator registers under another one are left out.
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
            held = around.cls.attribute(table.attr) or next(iter(around.cls.instance_attributes(table.attr)), None)
            return table.attr, held.file if held is not None else None, held.value if held is not None else None
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
