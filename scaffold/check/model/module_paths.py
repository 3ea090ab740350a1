"""Names below a training module: its sub-modules, dotted as PEFT and FSDP see them, and what a class sets."""

from __future__ import annotations

import ast
from typing import NamedTuple

from scaffold.check.model.calls import attribute_name, ending
from scaffold.check.model.python import ClassModel
from scaffold.check.model.submodules import Submodule, adders, submodules, texts_of

_DEEPEST = 12
_MOST = 5000
_PARAMETERS = ("torch.nn.Parameter", "torch.nn.parameter.Parameter")
_KNOWN = ("verl_omni.pipelines.non_diffusers_model_base.NonDiffusersModelBase", "torch.nn.")
_ADDERS = {"add_module", "register_module", "setattr"}
_SETTERS = {"setattr", "add_module", "register_module", "register_buffer", "register_parameter"}
# Calls that set nothing on the object that they get during construction.
_READERS = {"super", "getattr", "hasattr", "isinstance", "type", "len", "__init__"}


class ModulePaths(NamedTuple):
    """Names below a module.

    Attributes:
        modules: dotted names, elements of lists under ``{n}``: ``layers.{n}.mlp.up_proj``.
        complete: whether there is certainly nothing else.
        attributes: every name that the module itself has beside those of any module; None where that is not known.
    """

    modules: tuple[str, ...]
    complete: bool
    attributes: set[str] | None

    def targeted(self, target: str) -> bool:
        """Whether PEFT finds a module for a target: the whole name, or its last components."""
        return any(is_target(name, target) for name in self.modules)


def is_target(name: str, target: str) -> bool:
    """Whether PEFT takes a module for a target: its whole name, or the last components of it."""
    wanted = ["{n}" if part.isdigit() else part for part in target.split(".")]
    return name.split(".")[-len(wanted) :] == wanted


def module_paths(cls: ClassModel) -> ModulePaths:
    """Return the names that a class and what it builds give to their sub-modules."""
    modules: list[str] = []
    complete = True
    pending: list[tuple[str, ClassModel, int]] = [("", cls, 0)]
    while pending:
        prefix, owner, depth = pending.pop()
        if not _plain(owner) or depth > _DEEPEST or len(modules) > _MOST:
            complete = False
            continue
        for built in submodules(owner):
            name = ".".join([prefix + built.name, *built.built.path])
            if built.qualified in _PARAMETERS:
                continue
            if built.unknown:
                complete = False
            elif built.cls is not None:
                if _is_module(built.cls) is not False:
                    modules.append(name)
                    pending.append((f"{name}.", built.cls, depth + 1))
            elif built.qualified is not None and built.qualified.startswith("torch.nn."):
                modules.append(name)
            elif built.qualified is None or not built.qualified.startswith(("torch.", "builtins.")):
                # The call may make a module whose names are unknown.
                complete = complete and not _may_be_module(built)
    return ModulePaths(tuple(dict.fromkeys(modules)), complete, set_names(cls) if _plain(cls) else None)


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


def _is_module(cls: ClassModel) -> bool | None:
    return cls.derives_from("Module", "NonDiffusersModelBase")


def _plain(cls: ClassModel) -> bool:
    """Whether everything that a class builds stands in its text."""
    outside = [
        name for name in cls.external if not name.startswith(_KNOWN) and name not in ("torch.nn.Module", "object")
    ]
    if outside or not cls.resolved:
        return False
    methods = [method for owner in cls.mro for method in owner.methods.values()]
    for method in methods:
        named = {id(call) for call, name, _ in adders(method) if texts_of(method.file, name) is not None}
        if any(attribute_name(call) in _ADDERS and id(call) not in named for call in method.calls):
            return False
    return True


def _may_be_module(built: Submodule) -> bool:
    call = built.call
    if call is None or (isinstance(call.func, ast.Name) and built.qualified is None):
        return True
    name = attribute_name(call)
    # Classes begin with a capital; a lower-case function may build a module only where it says so.
    return name is None or name[:1].isupper() or name.startswith(("build", "make", "create", "get_", "_build", "_make"))
