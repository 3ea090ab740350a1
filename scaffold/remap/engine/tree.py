"""The engine's modules and parameters by name, from the constructors of a pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import options
from scaffold.inspect.program.values import Call, Const, Obj, Seq
from scaffold.source.values import Evidence, External, Func, Value

LINEAR = ("ColumnParallelLinear", "MergedColumnParallelLinear", "QKVParallelLinear", "RowParallelLinear",
          "ReplicatedLinear")  # fmt: skip
"""The linear layers of vLLM."""
SHARDED = (*LINEAR, "VocabParallelEmbedding", "ParallelLMHead")
"""Layers of vLLM whose parameters carry a ``weight_loader``."""
LISTS = ("ModuleList", "make_layers")
PARAMETERS = ("Parameter", "UninitializedParameter")
WEIGHT_ONLY = ("RMSNorm", "GemmaRMSNorm", "Embedding", "VocabParallelEmbedding", "ParallelLMHead")
EMPTY = ("SiLU", "GELU", "ReLU", "Identity", "Dropout", "SiluAndMul", "GeluAndMul", "NewGELU", "QuickGELU", "Tanh",
         "Sigmoid", "Attention", "PixelShuffle", "PixelUnshuffle", "Upsample")  # fmt: skip
WEIGHT_AND_BIAS = ("Linear", "Conv1d", "Conv2d", "Conv3d", "LayerNorm", "GroupNorm")
MAX_DEPTH = 24


@dataclass(eq=False)
class EngineModule:
    """One module of the engine.

    Attributes:
        kind: name of its class.
        bases: last names of its class and of all classes above it.
        place: its first name below the pipeline.
        children: modules by attribute; a list of layers has one child under ``{n}`` for all of them.
        parameters: its own parameters' names; None where the text does not say which there are.
        sharded: whether those parameters carry a ``weight_loader``.
        obj: the object of the abstract execution, where its class is part of the source.
        at: where it is made.
        attributes: what the loading code stores on it.
    """

    kind: str
    bases: tuple[str, ...]
    place: str
    children: dict[str, EngineModule] = field(default_factory=dict)
    parameters: tuple[str, ...] | None = ()
    sharded: bool | None = False
    obj: Obj | None = None
    at: Evidence | None = None
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def open(self) -> bool:
        """Whether the module may hold parameters that are not listed."""
        return self.parameters is None

    def find(self, name: str) -> EngineModule | None:
        """Return the module of a dotted name; digits go into a list of layers."""
        found: EngineModule | None = self
        for part in name.split(".") if name else []:
            found = found.child(part) if found is not None else None
        return found

    def child(self, part: str) -> EngineModule | None:
        """Return one child by the part of a name."""
        found = self.children.get(part)
        if found is None and part.isdigit():
            found = self.children.get("{n}")
        return found

    def walk(self, prefix: str = "", *, deduplicate: bool = False) -> Iterator[tuple[str, EngineModule]]:
        """Yield every module with its name below this one, parents first; shared ones under each name, or once."""
        yield from self._walk(prefix, set() if deduplicate else None, ())

    def _walk(self, prefix: str, seen: set[int] | None, above: tuple[int, ...]) -> Iterator[tuple[str, EngineModule]]:
        if id(self) in above or (seen is not None and id(self) in seen):
            return
        if seen is not None:
            seen.add(id(self))
        yield prefix, self
        for name, child in self.children.items():
            yield from child._walk(f"{prefix}.{name}" if prefix else name, seen, (*above, id(self)))


def build_tree(program: Program) -> EngineModule:
    """Return the tree of a pipeline whose constructor has run."""
    return _Builder(program).build(program.pipeline, "", 0)


class _Builder:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.known: dict[int, EngineModule] = {}

    def build(self, obj: Obj, place: str, depth: int) -> EngineModule:
        if id(obj) in self.known:
            return self.known[id(obj)]
        bases = tuple(c.name for c in obj.cls.mro) + tuple(
            base.rpartition(".")[2] for c in obj.cls.mro for base in c.external_bases
        )
        node = EngineModule(obj.cls.name, bases, place, obj=obj, at=obj.at)
        self.known[id(obj)] = node
        if depth > MAX_DEPTH:
            node.parameters = None
            return node
        self.program.execution.attributes.ensure_ready(obj)
        own = [base for base in bases if base in SHARDED]
        names: list[str] = []
        if own:
            names += ["weight"] if own[0] in WEIGHT_ONLY else ["weight", "bias"]
            node.sharded = True
        unknown = obj.json_file is not None
        created = self._created(obj)
        for name, value in list(obj.attrs.items()):
            made = [o for o in options(value) if isinstance(o, (Obj, Call))]
            at = f"{place}.{name}" if place else name
            found = [m for m in (self._module(o, at, depth) for o in made) if m is not None]
            if found:
                node.children[name] = _agreeing(found, at)
                for option in made:
                    if id(option) in created:
                        node.children[name].sharded = True
            elif any(isinstance(o, Call) and o.name in PARAMETERS for o in made):
                names.append(name)
        if any(base in ("AutoModel",) for base in bases):
            unknown = True
        node.parameters = None if unknown else tuple(dict.fromkeys(names))
        return node

    def _created(self, obj: Obj) -> set[int]:
        """Plain modules that a quantization method fills with weights, by identity."""
        filled: set[int] = set()
        for record in self.program.trace.calls:
            if record.method == "create_weights":
                filled |= {id(o) for v in (*record.args, *record.kwargs.values()) for o in options(v)}
        return filled

    def _module(self, value: Obj | Call, place: str, depth: int) -> EngineModule | None:
        if isinstance(value, Obj):
            if value.root is not None or not _is_module(value):
                return None
            return self.build(value, place, depth + 1)
        if id(value) in self.known:
            return self.known[id(value)]
        path = value.func.path if isinstance(value.func, External) else ""
        kind = value.name
        if path.startswith("builtins.") or (not kind[:1].isupper() and kind not in LISTS):
            return None
        node = EngineModule(kind, (kind,), place, at=value.at)
        if kind in LISTS or kind in ("Sequential", "ModuleDict"):
            self.known[id(value)] = node
            self._fill_list(node, value, place, depth)
        elif kind in PARAMETERS:
            return None
        elif kind in EMPTY:
            pass
        elif kind in SHARDED or kind in WEIGHT_ONLY or kind in WEIGHT_AND_BIAS:
            self.known[id(value)] = node
            node.sharded = kind in SHARDED
            node.parameters = _names(kind, value)
        elif _may_be_module(path):
            self.known[id(value)] = node
            # Only vLLM's layers give their parameters a loader.
            node.parameters, node.sharded = None, None if path.startswith("vllm") else False
        else:
            return None
        return node

    def _fill_list(self, node: EngineModule, value: Call, place: str, depth: int) -> None:
        for argument in value.args:
            if isinstance(argument, Func):
                made: list[Value] = [self.program.execution.call(argument, [Const("")], {}, value.at)]
                exact = False
            elif isinstance(argument, Seq):
                made, exact = argument.items, argument.exact
            elif value.name == "Sequential":
                continue
            else:
                made, exact = [], False
            if value.name == "Sequential" and not isinstance(argument, Seq):
                continue
            for number, item in enumerate(made):
                key = str(number) if exact else "{n}"
                modules = [o for o in options(item) if isinstance(o, (Obj, Call))]
                found = [m for m in (self._module(o, f"{place}.{key}", depth) for o in modules) if m is not None]
                if found:
                    node.children[key] = _agreeing(found, f"{place}.{key}")
        if value.name == "Sequential" and not any(isinstance(a, Seq) for a in value.args):
            for number, argument in enumerate(value.args):
                modules = [o for o in options(argument) if isinstance(o, (Obj, Call))]
                found = [m for m in (self._module(o, f"{place}.{number}", depth) for o in modules) if m is not None]
                if found:
                    node.children[str(number)] = _agreeing(found, f"{place}.{number}")
        if not node.children:
            # Filled later, or by something that is not followed.
            node.parameters, node.sharded = None, False


def _agreeing(found: list[EngineModule], place: str) -> EngineModule:
    """One module of several that may stand here; where they differ, nothing is said about its parameters."""
    if len({id(m) for m in found}) == 1 or len({(m.kind, m.parameters, tuple(m.children)) for m in found}) == 1:
        return found[0]
    sharded = {module.sharded for module in found}
    agreed = sharded.pop() if len(sharded) == 1 else None
    return EngineModule("one of several", (), place, parameters=None, sharded=agreed, at=found[0].at)


def _names(kind: str, value: Call) -> tuple[str, ...]:
    if kind in WEIGHT_ONLY:
        return ("weight",)
    bias = value.kwargs.get("bias")
    if isinstance(bias, Const) and bias.value is False:
        return ("weight",)
    return ("weight", "bias")


def _is_module(obj: Obj) -> bool:
    if obj.cls.is_module:
        return True
    outer = [base for cls in obj.cls.mro for base in cls.external_bases]
    return any(
        ".layers." in base or base.startswith(("torch.nn", "vllm.model_executor", "diffusers")) for base in outer
    )


def _may_be_module(path: str) -> bool:
    return path.startswith(("torch.nn", "vllm.model_executor", "transformers", "diffusers", "timm", "open_clip"))
