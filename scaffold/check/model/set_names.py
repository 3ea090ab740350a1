"""Names that a class sets on itself, where nothing else sets any."""

from __future__ import annotations

import ast

from scaffold.check.model.calls import ending
from scaffold.check.model.classes import ClassModel

_SETTERS = {"setattr", "add_module", "register_module", "register_buffer", "register_parameter"}
# What sets nothing on the object that it is handed while that is made.
_READERS = {"super", "getattr", "hasattr", "isinstance", "type", "len", "__init__"}


def set_names(cls: ClassModel) -> set[str] | None:
    """Return every name that a class and its ancestors of the tree set; None where some may be set in another way."""
    found: set[str] = set()
    for one in cls.mro:
        found |= {*one.methods, *one.own_attributes, *one.own_instance_attributes}
        if "__getattr__" in one.methods:
            return None
        for method in one.methods.values():
            for call in method.calls:
                name = ending(call.func)
                handed = any(isinstance(item, ast.Name) and item.id == method.bound for item in call.args)
                if name in _SETTERS and call.args and isinstance(call.args[0], ast.Constant):
                    found.add(str(call.args[0].value))
                elif name in _SETTERS or (handed and method.name == "__init__" and name not in _READERS):
                    return None
    return found | set(cls.fields)
