"""The classes around the pipeline: its module, request, engine options and result."""

from __future__ import annotations

import ast

from scaffold.inspect.facts import Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import options
from scaffold.inspect.program.values import Obj
from scaffold.source.classes import ClassInfo, Method

ORDER = 10
KEYS = (
    "detail.pipeline.module",
    "detail.pipeline.class",
    "detail.pipeline.registry_key",
    "detail.pipeline.bases",
    "detail.request.module",
    "detail.request.class",
    "detail.config.module",
    "detail.config.class",
    "detail.output.module",
    "detail.output.class",
)


def answers(program: Program) -> dict[str, Fact]:
    target = program.target
    place = program.place(program.cls)
    facts: dict[str, Fact] = {
        "detail.pipeline.module": fact(target.module, [place]),
        "detail.pipeline.class": fact(program.cls.name, [place]),
    }
    # Pipelines above it in model folders beside its own; mixins of all models lie above the folders.
    own = target.module.rpartition(".")[0]
    folders = {cls.module.name: cls.module.name.rpartition(".")[0] for cls in program.cls.mro}
    beside = [n for n, f in folders.items() if f != own and f.rpartition(".")[0] == own.rpartition(".")[0]]
    facts["detail.pipeline.bases"] = fact(beside, [place])
    if target.registry_keys:
        facts["detail.pipeline.registry_key"] = fact(target.registry_keys[0], [place])
    if program.entry is not None:
        found: tuple[ClassInfo, Method] | None = program.entry
        # A method that does not say what it takes takes what the one above it takes.
        while found is not None and "detail.request.class" not in facts:
            owner, node = found
            positional = [*node.args.posonlyargs, *node.args.args][1:]
            if positional:
                facts.update(_named(program, "request", positional[0].annotation, owner))
            found = program.cls.find_method(node.name, after=owner)
    init = program.cls.find_method("__init__")
    if init is not None:
        for argument in [*init[1].args.args[1:], *init[1].args.kwonlyargs]:
            cls = program.execution.requests.annotated_class(argument.annotation, init[0].module)
            if "detail.config.class" not in facts and cls is not None and cls.is_dataclass:
                # Other arguments are parts that a caller may hand over.
                facts.update(_named(program, "config", argument.annotation, init[0]))
    for option in options(program.result):
        if isinstance(option, Obj):
            facts["detail.output.module"] = fact(option.cls.module.name, [option.at])
            facts["detail.output.class"] = fact(option.cls.name, [option.at])
    return facts


def _named(program: Program, role: str, annotation: ast.expr | None, owner: ClassInfo) -> dict[str, Fact]:
    cls = program.execution.requests.annotated_class(annotation, owner.module)
    if cls is None:
        return {}
    place = program.place(owner, annotation)
    return {
        f"detail.{role}.module": fact(cls.module.name, [place, program.place(cls)]),
        f"detail.{role}.class": fact(cls.name, [place, program.place(cls)]),
    }
