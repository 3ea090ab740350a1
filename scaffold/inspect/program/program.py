"""The pipeline under inspection: its class, its abstract execution, and the calls questions may add."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from scaffold.errors import ScaffoldError
from scaffold.inspect.program.algebra import is_none, options
from scaffold.inspect.program.attributes import PIPELINE_ROOT
from scaffold.inspect.program.core import INLINE_STEPS, Execution
from scaffold.inspect.program.denoising import Denoising, find_denoising
from scaffold.inspect.program.schedule import Counter
from scaffold.inspect.program.trace import Trace
from scaffold.inspect.program.values import Call, Map, Obj, Param, Slot
from scaffold.limits.cpu_limit import CpuLimit, CpuLimitError
from scaffold.source.classes import ClassInfo, Method
from scaffold.source.syntax import is_own, walk_tree
from scaffold.source.values import ClassRef, Evidence, Func, Unknown, Value

if TYPE_CHECKING:
    from scaffold.checkpoint import CheckpointHeaders
    from scaffold.upstream import PipelineTarget, UpstreamSource

ENTRY_METHODS = ("forward", "__call__", "generate")

EXECUTIONS = 5.0
"""Seconds of processor time that the executions of one inspection may take together."""


Given = ParamSpec("Given")
Answer = TypeVar("Answer")


def once(
    question: Callable[Concatenate[Program, Given], Answer],
) -> Callable[Concatenate[Program, Given], Answer]:
    """Decorate a function of a program so that its result is cached per program and further arguments."""

    @wraps(question)
    def asked(program: Program, /, *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        key = (question, *args)
        if key not in program.known:
            program.known[key] = question(program, *args, **kwargs)
        known: Answer = program.known[key]
        return known

    return asked


class Program:
    """One pipeline class of one version, executed on the default text-to-image request unless told otherwise.

    Attributes:
        pipeline: the pipeline object.
        entry: the method that was executed.
        result: what it returns.
        execution: the values and the interpreter.
        alone: whether a function was executed by itself, because no request was followed to it.
        with_references: whether the request brings images to make another one of.
    """

    def __init__(
        self,
        source: UpstreamSource,
        target: PipelineTarget,
        *,
        with_media: bool = False,
        with_everything: bool = False,
        with_references: bool = False,
        key: str | None = None,
        headers: CheckpointHeaders | None = None,
    ) -> None:
        self.source = source
        self.execution = Execution(
            source,
            with_media=with_media or with_everything or with_references,
            with_everything=with_everything,
            # A class with one name needs no file that tells it which it is.
            model_name=key if len(target.registry_keys) > 1 else None,
            headers=headers,
        )
        self.scopes = self.execution.scopes
        self.target = target
        self.cls = self._pipeline_class()
        self.pipeline = Obj(self.cls, root=PIPELINE_ROOT, at=Evidence(self.cls.module.file, self.cls.node.lineno))
        self.entry: tuple[ClassInfo, Method] | None = None
        self.result: Value | None = None
        self.known: dict[tuple[object, ...], Any] = {}
        self.alone = False
        self.with_references = with_references
        self.cpu_limit = CpuLimit(EXECUTIONS, EXECUTIONS)

    @property
    def trace(self) -> Trace:
        """What happened on the way."""
        return self.execution.trace

    def _pipeline_class(self) -> ClassInfo:
        module = self.scopes.graph.find(self.target.module)
        if module is None:
            # Reading again raises the error that says why.
            self.source.tree(self.target.file)
            raise ScaffoldError(f"vllm-omni {self.source.label} has no module {self.target.module}")
        value = self.scopes.lookup(module, self.target.class_name)
        if not isinstance(value, ClassRef):
            raise ScaffoldError(f"{module.file} in vllm-omni {self.source.label} has no class {self.target.class_name}")
        return value.cls

    def run(self) -> None:
        """Execute ``__init__`` and the entry method."""
        with self._deep():
            self.construct()
            self._find_entry()
            if self.entry is not None:
                self._run_entry(*self.entry)

    def give(self, keys: Iterable[str]) -> None:
        """Have the request bring these keys of its prompt, beside the words."""
        self.execution.demanded |= set(keys)

    def run_alone(self, function: Method, owner: ast.ClassDef | None, file: str) -> None:
        """Execute ``__init__``, then one function of a file with unknown arguments."""
        self.alone = True
        with self._deep():
            self.construct()
            self._find_entry()
            module = self.scopes.graph.find(file.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
            if module is None:
                return
            at = Evidence(file, function.lineno)
            cls = self.scopes.classes.get(owner, module) if owner is not None else None
            bound = self._instance(cls, at) if cls is not None else None
            self.execution.budget.spent = 0
            self.result = self.execution.call(Func(function, module, cls, bound), [], {}, at)

    def _instance(self, cls: ClassInfo, at: Evidence) -> Obj:
        """The object of a class that the pipeline is or holds, else a new one."""
        for held in [self.pipeline, *(o for v in self.pipeline.attrs.values() for o in options(v))]:
            if isinstance(held, Obj) and cls in held.cls.mro:
                return held
        return Obj(cls, at=at)

    def _find_entry(self) -> None:
        self.entry = next((m for name in ENTRY_METHODS if (m := self.cls.find_method(name)) is not None), None)

    @contextmanager
    def _deep(self) -> Iterator[None]:
        """Raise the recursion limit; deeper nesting still ends the execution at that point."""
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(max(limit, 12_000))
        try:
            with self.cpu_limit.work():
                yield
        except (RecursionError, CpuLimitError) as error:
            self.execution.failures.append(error)
        finally:
            sys.setrecursionlimit(limit)

    def construct(self) -> None:
        """Execute ``__init__`` alone."""
        self.pipeline.ready = True
        init = self.cls.find_method("__init__")
        if init is None:
            return
        owner, node = init
        kwargs: dict[str, Value] = {}
        at = Evidence(owner.module.file, node.lineno)
        for argument in [*node.args.args[1:], *node.args.kwonlyargs]:
            found = self.execution.requests.annotated_class(argument.annotation, owner.module)
            if argument.arg == "od_config" or (found is not None and found.is_dataclass):
                kwargs[argument.arg] = self.execution.requests.make_options(argument.annotation, owner.module, at)
        self.execution.constructing = True
        try:
            self.execution.call(Func(node, owner.module, owner, self.pipeline), [], kwargs, at)
            self._fill_by_loader()
        finally:
            self.execution.constructing = False
        self._open_slots()

    def _fill_by_loader(self) -> None:
        """Execute ``load_weights`` where it, and not the constructor, makes the pipeline's components."""
        found = self.cls.find_method("load_weights")
        if found is None:
            return
        targets = [t for n in walk_tree(found[1]) if isinstance(n, ast.Assign) for t in n.targets]
        made = {target.attr for target in targets if is_own(target)}
        if made - set(self.pipeline.attrs):
            given = {a.arg: Param("weights", "") for a in found[1].args.args[1:2]}
            self.invoke(self.pipeline, "load_weights", dict(given))

    def _open_slots(self) -> None:
        """Attributes left empty by the constructor may be set by the pipeline's owner."""
        for name, value in self.pipeline.attrs.items():
            if is_none(value):
                self.pipeline.attrs[name] = Slot(name, at=value.at)
            elif isinstance(value, Map) and not value.items:
                value.exact = False

    def _run_entry(self, owner: ClassInfo, node: Method) -> None:
        at = Evidence(owner.module.file, node.lineno)
        arguments: list[Value] = []
        positional = [*node.args.posonlyargs, *node.args.args][1:]
        if positional:
            arguments.append(self.execution.requests.make_request(positional[0].annotation, owner.module, at))
        self.execution.budget.spent = 0
        # Reads by the request class while filling its defaults are not the pipeline's.
        self.execution.trace.reads.clear()
        self.result = self.execution.call(Func(node, owner.module, owner, self.pipeline), arguments, {}, at)

    def run_ready_maker(self, name: str) -> tuple[Trace, bool] | None:
        """Execute, apart from the main run, the function that makes a request ready before the entry method gets it.

        Args:
            name: of the function of the pipeline's module that returns it.

        Returns:
            What happened, and whether the end was reached; None where it was not followed.
        """
        maker = self.scopes.lookup(self.cls.module, name)
        if not isinstance(maker, Func) or isinstance(maker.node, ast.Lambda):
            return None
        at = Evidence(maker.module.file, maker.node.lineno)
        first = next(iter([*maker.node.args.posonlyargs, *maker.node.args.args]), None)
        given = [self.execution.requests.make_options(first.annotation, maker.module, at)] if first is not None else []
        run, reader = self.execution, self.execution.interpreter
        kept = run.trace, run.put_in, reader.stack, run.demanded, run.with_media
        trace, ended = Trace(), False
        try:
            with self._deep():
                # A request without media is refused by some.
                for media in dict.fromkeys((run.with_media, True)):
                    run.trace, run.put_in, reader.stack, run.demanded = Trace(), {}, [], set()
                    run.with_media, run.budget.spent = media, 0
                    ready = run.call(maker, list(given), {}, at)
                    request = run.requests.make_single_request(at)
                    if request is None or not isinstance(ready, (Func, Call)):
                        return None
                    run.trace = trace = Trace()
                    result = run.call(ready, [request], {}, at)
                    if isinstance(result, Call):
                        return None
                    ended = not isinstance(result, Unknown)
                    if ended:
                        trace.own |= run.requests.keys_put_in(request) - trace.reads.keys()
                        break
        finally:
            run.trace, run.put_in, reader.stack, run.demanded, run.with_media = kept
        return trace, ended

    @cached_property
    def nodes(self) -> list[tuple[ClassInfo, list[ast.AST]]]:
        """The pipeline's class and those above it, each with all nodes of its text."""
        return [(cls, list(walk_tree(cls.node))) for cls in self.cls.mro]

    @cached_property
    def denoising(self) -> Denoising | None:
        """The denoising loop of the default path, if there is one."""
        found = find_denoising(self.execution.trace)
        return found[0] if found else None

    @cached_property
    def counter(self) -> Counter:
        return Counter(self.execution.trace)

    def attribute_of(self, value: Value) -> str | None:
        """The dotted name under which the pipeline holds a value."""
        for name, held in self.pipeline.attrs.items():
            if any(o is value for o in options(held)):
                return name
        for name, held in self.pipeline.attrs.items():
            for option in options(held):
                if isinstance(option, Obj) and option.root is None:
                    for inner, deeper in option.attrs.items():
                        if any(o is value for o in options(deeper)):
                            return f"{name}.{inner}"
        return None

    def attribute_value(self, receiver: Value) -> Value:
        """All that the attribute may hold of which a step that is followed names one object."""
        return self.pipeline.attrs.get(self.attribute_of(receiver) or "", receiver)

    def invoke(self, obj: Obj, method: str, arguments: dict[str, Value]) -> Value | None:
        """Execute a method of an object apart from the main run, with the given arguments."""
        found = obj.cls.find_method(method)
        if found is None:
            return None
        self.execution.attributes.ensure_ready(obj)
        owner, node = found
        names = [a.arg for a in [*node.args.args[1:], *node.args.kwonlyargs]]
        kwargs = {n: arguments.get(n, Param("argument", n)) for n in names if n in arguments or _required(node, n)}
        stack, self.execution.interpreter.stack = self.execution.interpreter.stack, []
        self.execution.budget.spent = min(self.execution.budget.spent, INLINE_STEPS // 2)
        try:
            return self.execution.call(
                Func(node, owner.module, owner, obj), [], kwargs, Evidence(owner.module.file, node.lineno)
            )
        finally:
            self.execution.interpreter.stack = stack

    def place(self, cls: ClassInfo, node: ast.AST | None = None) -> Evidence:
        """Where a class, or a node of its module, is written."""
        return Evidence(cls.module.file, getattr(node, "lineno", cls.node.lineno))


def _required(node: Method, name: str) -> bool:
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    optional = {a.arg for a in positional[len(positional) - len(arguments.defaults) :]}
    optional |= {a.arg for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None}
    return name not in optional
