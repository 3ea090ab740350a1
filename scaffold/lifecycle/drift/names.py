"""Names of one version of vllm-omni: their places, signatures, attributes and fields."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property

from scaffold.inspect.facts import Evidence
from scaffold.inspect.program import Program
from scaffold.lifecycle.drift.uses import Name
from scaffold.source.classes import ClassInfo
from scaffold.source.values import ClassRef, External, Func
from scaffold.upstream import UpstreamSource, resolve_pipeline


@dataclass(frozen=True)
class Found:
    """A name that exists: its text and its place."""

    text: str
    place: Evidence | None


class Names:
    """Looks up, in one version, the names that a package uses."""

    def __init__(self, source: UpstreamSource, pipeline: str) -> None:
        self._program = Program(source, resolve_pipeline(source, pipeline))

    def name(self, name: Name) -> Found | None:
        """Return what an imported name is, or None if importing it fails."""
        module, attribute = name
        info = self._program.scopes.graph.find(module)
        if info is None:
            return None
        if attribute == "*":
            return Found("module", Evidence(info.file, 1))
        value = self._program.scopes.lookup(info, attribute)
        if value is None:
            inner = self._program.scopes.graph.find(f"{module}.{attribute}")
            return Found("module", Evidence(inner.file, 1)) if inner is not None else None
        if isinstance(value, ClassRef):
            return Found("class", self._program.place(value.cls))
        if isinstance(value, Func):
            return Found("function", Evidence(value.module.file, value.node.lineno))
        return Found("outside vllm_omni" if isinstance(value, External) else "value", value.at)

    def cls(self, name: Name) -> ClassInfo | None:
        """Return a class by name."""
        info = self._program.scopes.graph.find(name[0])
        value = self._program.scopes.lookup(info, name[1]) if info is not None else None
        return value.cls if isinstance(value, ClassRef) else None

    def signature(self, cls: ClassInfo, method: str) -> Found | None:
        """Return the signature of a method, annotations left out."""
        found = cls.find_method(method)
        if found is None:
            return None
        owner, node = found
        return Found(f"{method}({signature(node.args)})", Evidence(owner.module.file, node.lineno))

    def call_signature(self, name: Name) -> tuple[ast.arguments, Found] | None:
        """Return the arguments of a function, or of the ``__init__`` of a class, dataclasses included."""
        info = self._program.scopes.graph.find(name[0])
        value = self._program.scopes.lookup(info, name[1]) if info is not None else None
        if isinstance(value, Func) and isinstance(value.node, ast.FunctionDef | ast.AsyncFunctionDef):
            place = Evidence(value.module.file, value.node.lineno)
            return value.node.args, Found(f"{name[1]}({signature(value.node.args)})", place)
        if not isinstance(value, ClassRef):
            return None
        cls = value.cls
        init = cls.find_method("__init__")
        if init is not None:
            arguments, place = _without_first(init[1].args), Evidence(init[0].module.file, init[1].lineno)
        elif cls.is_dataclass:
            arguments, place = _of_fields(cls), self._program.place(cls)
        else:
            return None
        return arguments, Found(f"{name[1]}({signature(arguments)})", place)

    def attribute(self, cls: ClassInfo, name: str) -> Found | None:
        """Return an attribute: a method, a class attribute, a field, or one that a method sets on ``self``."""
        for member in cls.mro:
            if name in member.methods:
                return Found("method", Evidence(member.module.file, member.methods[name].lineno))
            node = member.assigns.get(name) or member.annotations.get(name)
            if node is not None:
                return Found("attribute", Evidence(member.module.file, node.lineno))
            if name in member.nested:
                return Found("class", Evidence(member.module.file, member.nested[name].lineno))
        for member in cls.mro:
            line = self._self_attributes(member, stored=True).get(name)
            if line is not None:
                return Found("attribute", Evidence(member.module.file, line))
        return None

    def mentioned(self, cls: ClassInfo, name: str) -> Found | None:
        """Return the first place where a class or one of its bases reads or sets ``self.name``, or defines it."""
        for member in cls.mro:
            line = self._self_attributes(member, stored=False).get(name)
            if line is not None:
                return Found("attribute", Evidence(member.module.file, line))
        return self.attribute(cls, name)

    def abstract_methods(self, cls: ClassInfo) -> dict[str, Found]:
        """Return the abstract methods that no class in between implements."""
        found: dict[str, Found] = {}
        seen: set[str] = set()
        for member in cls.mro:
            for name, node in member.methods.items():
                if name not in seen and any("abstractmethod" in ast.unparse(d) for d in node.decorator_list):
                    found[name] = Found(f"{name}({signature(node.args)})", Evidence(member.module.file, node.lineno))
                seen.add(name)
        return found

    def result_class(self, cls: ClassInfo, method: str) -> ClassInfo | None:
        """Return the class a method is annotated to return."""
        found = cls.find_method(method)
        return self._program.execution.requests.annotated_class(found[1].returns, found[0].module) if found else None

    def type_of(self, cls: ClassInfo, name: str) -> ClassInfo | None:
        """Return the class of an attribute, as far as annotations tell."""
        annotated = cls.find_annotation(name)
        if annotated is not None:
            return self._program.execution.requests.annotated_class(annotated[1], annotated[0].module)
        found = cls.find_method(name)
        if found is not None and any(isinstance(d, ast.Name) and "property" in d.id for d in found[1].decorator_list):
            return self._program.execution.requests.annotated_class(found[1].returns, found[0].module)
        return None

    def argument_class(self, cls: ClassInfo, method: str) -> Name | None:
        """Return the class that the first argument of a method is annotated with."""
        found = cls.find_method(method)
        if found is None:
            return None
        positional = [*found[1].args.posonlyargs, *found[1].args.args][1:]
        annotated = (
            self._program.execution.requests.annotated_class(positional[0].annotation, found[0].module)
            if positional
            else None
        )
        return (annotated.module.name, annotated.name) if annotated is not None else None

    def _self_attributes(self, cls: ClassInfo, *, stored: bool) -> dict[str, int]:
        known = self._attributes.get(id(cls))
        if known is None:
            known = self._attributes[id(cls)] = (_self_mentions(cls, True), _self_mentions(cls, False))
        return known[0] if stored else known[1]

    @cached_property
    def _attributes(self) -> dict[int, tuple[dict[str, int], dict[str, int]]]:
        return {}


def signature(arguments: ast.arguments) -> str:
    """Return names, kinds and defaults of arguments as source text, without annotations."""

    def bare(argument: ast.arg) -> ast.arg:
        return ast.arg(argument.arg)

    return ast.unparse(
        ast.arguments(
            [bare(a) for a in arguments.posonlyargs],
            [bare(a) for a in arguments.args],
            bare(arguments.vararg) if arguments.vararg else None,
            [bare(a) for a in arguments.kwonlyargs],
            arguments.kw_defaults,
            bare(arguments.kwarg) if arguments.kwarg else None,
            arguments.defaults,
        )
    )


def _without_first(arguments: ast.arguments) -> ast.arguments:
    positional = [*arguments.posonlyargs, *arguments.args][1:]
    return ast.arguments([], positional, arguments.vararg, arguments.kwonlyargs, arguments.kw_defaults,
                         arguments.kwarg, arguments.defaults[-len(positional):] if positional else [])  # fmt: skip


def _of_fields(cls: ClassInfo) -> ast.arguments:
    fields = cls.all_fields()
    # A field without a default after one with a default is keyword-only; every field binds by keyword.
    names = [ast.arg(name) for _, name, _ in fields]
    defaults: list[ast.expr | None] = [default for _, _, default in fields]
    return ast.arguments([], [], None, names, defaults, None, [])


def _self_mentions(cls: ClassInfo, stored: bool) -> dict[str, int]:
    found: dict[str, int] = {}
    for method in cls.methods.values():
        for node in ast.walk(method):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "self"
                and (not stored or isinstance(node.ctx, ast.Store))
            ):
                found.setdefault(node.attr, node.lineno)
    return found
