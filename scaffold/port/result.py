"""What a port is: text, and everything a person must know about it, as data."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from scaffold.source.syntax import is_own, walk_tree

# The form of a package whose denoiser is upstream's own; an older one may hold the text of one.
IMPORTED = "imported"


@dataclass(frozen=True)
class Gap:
    """A name of the engine's without a counterpart in plain torch; the module raises where it is called.

    Attributes:
        what: what it is.
        file: where it stands.
        line: where it stands.
        version: of vllm-omni.
    """

    what: str
    file: str
    line: int
    version: str


@dataclass(frozen=True)
class Fused:
    """A fused layer of vllm-omni's and the plain ones that stand for it, in the order of its rows."""

    owner: str
    name: str
    parts: tuple[str, ...]


@dataclass(frozen=True)
class Assumption:
    """Something that the engine decides at run time and the port takes as decided."""

    what: str
    file: str
    line: int


@dataclass(frozen=True)
class Kept:
    """Where a pipeline keeps its denoiser.

    Attributes:
        module: dotted name of the module that has the pipeline.
        name: the pipeline's class.
        attribute: the attribute of ``self`` that holds the denoiser.
    """

    module: str
    name: str
    attribute: str


@dataclass(frozen=True)
class Port:
    """A denoiser, and how a package imports it.

    Attributes:
        text: of the module that imports the denoiser, not formatted; it imports nothing of vllm or vllm_omni itself.
        source: what the denoiser needs of vllm-omni's source, to be read: linear layers as the checkpoint has them.
        entry: name of the denoiser's class.
        classes: all classes in it that come from vllm-omni, in the order of the text.
        layer_classes: those that the denoiser holds in lists, for FSDP to wrap.
        gaps: what raises NotImplementedError, by place.
        derived_from: files of vllm-omni's that the text comes from.
        fused: which plain layers stand for which fused ones.
        assumptions: answers of the engine's run time that were taken as given on one device.
        parameters: names of the constructor's parameters, in order.
        inputs: names of the parameters of the method that predicts, in order.
        method: that method; ``forward`` where nothing else is known.
        context: attributes of the engine's context that this method reads, each with the argument of the port's for it.
        context_module: dotted name of the module that has this context; empty where it is not read.
        state: what its classes keep from one call to the next.
        builder: name of the function that builds the denoiser as the pipeline does; empty where that is unknown.
        unbuilt: ``file:line`` and reason where it is unknown; None where nobody looked.
        kept: where the pipeline keeps the denoiser; None where that is unknown.
        streamed: whether the engine streams the checkpoint to the pipeline, which hands it on to the denoiser.
        handed: whether the pipeline hands the weights to the denoiser's own loader by itself.
        reads: whether ``builder`` reads the files of weights itself.
        file: whether the checkpoint is one file of weights instead of a folder.
        constant: whether ``builder`` asks no configuration, so that the denoiser's sizes are constants of the source.
        structures: whether classes of data hold tensors, beside those that stand for the engine's.
        shared: whether classes are handed modules of others, so that parameters may have several names.
        tables: whether there is ``constant_tables``, a function of the denoiser that returns tables by name which the
            pipeline makes of it and gives to every call.
        loader: whether the class has the method by which it places weights of the checkpoint.
        own: whether the class is the pipeline's own, cut down to what predicts.
        loader_lines: file, first and last line of vllm-omni where that method stands.
        checkpointed: layer classes that are called through ``_checkpointed_call``.
        executed: files that it executes, with the SHA-256 of each.
    """

    text: str
    source: str
    entry: str
    classes: tuple[str, ...]
    layer_classes: tuple[str, ...]
    gaps: tuple[Gap, ...]
    derived_from: tuple[str, ...]
    fused: tuple[Fused, ...] = ()
    assumptions: tuple[Assumption, ...] = ()
    parameters: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    checkpointed: tuple[str, ...] = ()
    kept: Kept | None = None
    builder: str = ""
    unbuilt: tuple[str, str] | None = None
    streamed: bool = False
    handed: bool = False
    reads: bool = False
    file: bool = False
    constant: bool = False
    shared: bool = False
    structures: bool = False
    tables: bool = False
    loader: bool = False
    own: bool = False
    loader_lines: tuple[tuple[str, int, int], ...] = ()
    executed: tuple[tuple[str, str], ...] = ()
    method: str = "forward"
    context: tuple[tuple[str, str], ...] = ()
    context_module: str = ""
    state: tuple[KeptState, ...] = ()


# What the classes of a port keep between calls: attributes that a method assigns, and their first values.

_STARTS = ("__init__", "load_weights", "__setattr__")


@dataclass(frozen=True)
class KeptState:
    """An attribute that a call leaves behind.

    Attributes:
        owner: the class.
        name: the attribute.
        first: text of the constant that the constructor gives it; None where it gives no constant.
    """

    owner: str
    name: str
    first: str | None


def kept_state(source: str, classes: Iterable[str]) -> tuple[KeptState, ...]:
    """Return the attributes of ``self`` that methods of these classes assign, their constructors left out.

    Args:
        source: text of the module.
        classes: names of the classes to look at.
    """
    wanted = set(classes)
    found: list[KeptState] = []
    for owner in ast.parse(source).body:
        if not isinstance(owner, ast.ClassDef) or owner.name not in wanted:
            continue
        methods = [node for node in owner.body if isinstance(node, ast.FunctionDef)]
        first = dict(_assigned(method for method in methods if method.name == "__init__"))
        kept = dict(_assigned(method for method in methods if method.name not in _STARTS))
        for name in kept:
            value = first.get(name)
            found.append(KeptState(owner.name, name, ast.unparse(value) if isinstance(value, ast.Constant) else None))
    return tuple(found)


def _assigned(methods: Iterable[ast.FunctionDef]) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield attributes of ``self`` that methods assign, each with its value where that stands alone."""
    for method in methods:
        for node in walk_tree(method):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    yield from _of_self([target], node.value)
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                yield from _of_self([node.target], node.value)
            elif isinstance(node, ast.AugAssign):
                yield from _of_self([node.target], None)


def _of_self(targets: Sequence[ast.expr], value: ast.expr | None) -> Iterator[tuple[str, ast.expr | None]]:
    for target in targets:
        if isinstance(target, (ast.Tuple, ast.List)):
            parts = value.elts if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts) else None
            for index, inner in enumerate(target.elts):
                yield from _of_self([inner], parts[index] if parts else None)
            continue
        while isinstance(target, ast.Subscript):
            target, value = target.value, None
        if is_own(target):
            yield target.attr, value
