"""A pipeline's own denoiser, of the vllm-omni that is installed, over plain layers of torch.

The text of vllm-omni's modules is executed under private names, without what turns gradients off. What they import of
the engine is answered by ``upstream_layers``; neither ``vllm`` nor ``vllm_omni`` is imported, and nothing stands under
their names.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import importlib.util
import os
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeGuard

import torch
from torch import nn

from .fused import Fused
from .upstream_layers import ANSWERS, CONTEXT, Linear, Merged, NoCounterpart, Nowhere

PRIVATE = "flow_grpo_upstream"
# A folder with vllm-omni's text, for where vllm-omni is not installed.
FOLDER = "FLOW_GRPO_UPSTREAM"
# Digits of a SHA-256 that tell one text from another.
DIGITS = 32
# Libraries beside a denoiser, which its module imports and training does not call: where one is not installed it may be
# named, as what is the engine's may.
BESIDE = ("cache_dit", "torchvision", "torchaudio")
# What imports these where they are installed has a plain branch for where they are not.
KERNELS = ("flash_attn", "mindiesd", "aiter", "sageattention", "flash_attn_interface", "fa3_fwd_interface", "torch_npu")


class Upstream:
    """Modules of one vllm-omni, executed one by one as they are asked for.

    Args:
        version: of vllm-omni, for what is said about it.
        files: those that may be executed, relative to the folder that holds ``vllm_omni``, with the digest of each
            (SHA-256, or its first 32 digits). What a module imports from any other of the engine's is answered by plain
            counterparts, or by a class that raises when it is called.
    """

    _loaded: ClassVar[dict[tuple[str, str], types.ModuleType]] = {}

    def __init__(self, version: str, files: Mapping[str, str]) -> None:
        self.version, self.files = version, dict(files)
        # Names of executed modules begin with that of the caller's module, as a named tuple's does: another process
        # finds a pickled class by importing what executes its text.
        self._home = str(sys._getframe(1).f_globals["__name__"])
        self._paths = {_module(file): file for file in self.files}
        absent = (name for name in BESIDE if name not in sys.modules and importlib.util.find_spec(name) is None)
        self._packages = {"vllm", "vllm_omni", *absent, *(file.partition("/")[0] for file in self.files)}
        self._builtins = {**vars(builtins), "__import__": self._import}

    def load(self, name: str) -> types.ModuleType:
        """The module of that name.

        Raises:
            ImportError: it is not installed, not among ``files``, or not the text that was verified.
        """
        if name not in self._paths:
            raise ImportError(f"{name} of vllm-omni {self.version} is not among the files that this package names")
        file = self._paths[name]
        digest = self.files[file][:DIGITS]
        known = self._loaded.get((name, digest))
        if known is not None:
            return known
        path = _installed(file)
        if path is None:
            raise ImportError(f"{file} is not installed: install vllm-omni {self.version}")
        text = path.read_bytes()
        if not hashlib.sha256(text).hexdigest().startswith(self.files[file]) or len(digest) < DIGITS:
            raise ImportError(
                f"{path} is not the text of vllm-omni {self.version} that this package was verified with: install that "
                "version, or run `omni-scaffold update` and `omni-scaffold verify` on the package"
            )
        module = types.ModuleType(f"{self._home}.{PRIVATE}_{digest[:12]}_{name.replace('.', '_')}")
        package = path.name == "__init__.py"
        module.__file__, module.__builtins__ = str(path), self._builtins  # type: ignore[attr-defined]
        module.__package__ = name if package else name.rpartition(".")[0]
        self._loaded[name, digest] = sys.modules[module.__name__] = module  # dataclasses and pickle look there
        try:
            tree = ast.fix_missing_locations(_Trained().visit(ast.parse(text, str(path))))
            exec(compile(tree, str(path), "exec", dont_inherit=True), vars(module))
        except BaseException:
            del self._loaded[name, digest], sys.modules[module.__name__]
            raise
        return module

    def __call__(self, name: str) -> Any:
        """The object ``module:name``, or its counterpart."""
        module, _, attribute = name.partition(":")
        return self._find(module, attribute)

    def _import(
        self,
        name: str,
        namespace: Mapping[str, Any] | None = None,
        here: Any = None,
        wanted: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        if level:
            package = str((namespace or {})["__package__"]).split(".")
            name = ".".join([*package[: len(package) - level + 1], *([name] if name else [])])
        if name.partition(".")[0] in KERNELS:
            raise ImportError(f"{name} has kernels for inference: the plain code is what is trained")
        if name.partition(".")[0] not in self._packages:
            return builtins.__import__(name, namespace, here, wanted or (), 0)
        if not wanted:
            return Nowhere(name.partition(".")[0])
        return types.SimpleNamespace(**{one: self._find(name, one) for one in wanted})

    def _find(self, module: str, name: str) -> Any:
        """What ``from module import name`` binds."""
        for key in (f"{module}:{name}", name):
            if key in ANSWERS and (key != name or module not in self._paths):
                return ANSWERS[key]
        if f"{module}.{name}" in self._paths:
            return self.load(f"{module}.{name}")
        if module in self._paths:
            return getattr(self.load(module), name)
        return NoCounterpart(name, (), {"__module__": module, "no_counterpart": True})


class _Trained(ast.NodeTransformer):
    """Leaves out what turns gradients off or hands code to a compiler or Triton, and copies what is changed in place.

    A function that changes the tensor that it returns, ``x[:, :n].add_(y)``, changes a copy of it: the backward pass
    of what was computed before wants it as it was. Where parameters are changed in place, gradients stay off.
    """

    WITHOUT = ("no_grad", "inference_mode", "set_grad_enabled", "compile", "support_torch_compile", "jit", "autotune")

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.decorator_list = [made for made in node.decorator_list if not self._is_left_out(made)]
        returned = {
            inner.value.id for inner in ast.walk(node) if isinstance(inner, ast.Return) and _is_name(inner.value)
        }
        for inner in ast.walk(node):
            for name in ("body", "orelse", "finalbody"):
                lines = getattr(inner, name, None)
                if isinstance(lines, list):
                    setattr(inner, name, [new for line in lines for new in _copied_first(line, returned)])
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """What is put into a tensor takes its dtype: autocast may compute it in another than the weights'."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "scatter_":
            for keyword in (keyword for keyword in node.keywords if keyword.arg == "src"):
                cast = ast.parse(f"x.to({ast.unparse(node.func.value)}.dtype)", mode="eval").body
                cast.func.value, keyword.value = keyword.value, cast  # type: ignore[attr-defined]
        return node

    def visit_Expr(self, node: ast.Expr) -> Any:
        """A configuration that transformers knows already is not made known to it again: that one is the engine's."""
        call = node.value
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "AutoConfig.register" and call.args:
            known = "from transformers import CONFIG_MAPPING as _KNOWN_TO_TRANSFORMERS\n"
            test = f"if {ast.unparse(call.args[0])} not in _KNOWN_TO_TRANSFORMERS: pass"
            taken, guarded = ast.parse(known + test).body
            guarded.body = [node]  # type: ignore[attr-defined]
            return [ast.copy_location(taken, node), ast.copy_location(guarded, node)]
        return self.generic_visit(node)

    def visit_With(self, node: ast.With) -> Any:
        self.generic_visit(node)
        if any(_changes(inner) for inner in ast.walk(node)):
            return node
        node.items = [item for item in node.items if not self._is_left_out(item.context_expr)]
        return node if node.items else node.body

    def _is_left_out(self, node: ast.expr) -> bool:
        named = node.func if isinstance(node, ast.Call) else node
        return (named.attr if isinstance(named, ast.Attribute) else getattr(named, "id", "")) in self.WITHOUT


def _is_name(node: ast.AST | None) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name)


def _changes(node: ast.AST) -> bool:
    """Whether this is ``x.add_(y)``."""
    name = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
    return name.endswith("_") and not name.endswith("__")


def _copied_first(line: Any, names: set[str]) -> list[Any]:
    """A statement, after a copy of the tensor of one of ``names`` that it changes."""
    if not isinstance(line, ast.Expr) or not _changes(line.value):
        return [line]
    changed = line.value.func.value  # type: ignore[attr-defined]
    changed = changed.value if isinstance(changed, ast.Subscript) else changed
    if not _is_name(changed) or changed.id not in names:
        return [line]
    copy = ast.copy_location(ast.parse(f"{changed.id} = {changed.id}.clone()").body[0], line)
    return [copy, line]


def _module(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _installed(file: str) -> Path | None:
    """Where a file of an installed package is, which is looked up without importing it."""
    name = file.partition("/")[0]
    loaded = sys.modules.get(name)
    spec = importlib.util.find_spec(name) if loaded is None else loaded.__spec__
    folders = [*getattr(loaded, "__path__", ()), *((spec and spec.submodule_search_locations) or ())]
    places = [Path(os.environ[FOLDER])] if os.environ.get(FOLDER) else []
    places += [Path(folder).parent for folder in folders]
    return next((place / file for place in places if (place / file).is_file()), None)


def in_context(kind: type[nn.Module], fields: Mapping[str, str]) -> type[nn.Module]:
    """A denoiser's class whose ``forward`` takes as arguments what the pipeline hands over in the engine's context.

    Args:
        kind: the class; what it reads, it reads before its layers are called.
        fields: attributes of the context, each with the name of the argument.
    """

    def forward(self: nn.Module, *args: Any, **named: Any) -> Any:
        before = CONTEXT.fields
        CONTEXT.fields = {field: named.pop(argument, None) for field, argument in fields.items()}
        try:
            return kind.forward(self, *args, **named)
        finally:
            CONTEXT.fields = before

    return type(kind.__name__, (kind,), {"forward": forward, "__module__": sys._getframe(1).f_globals["__name__"]})


class FusedCall:
    """Stands where a fused layer stood: calls the layers that its owner has instead, and joins what they return.

    Args:
        owner: has the layers.
        names: of them, in the order of the fused layer's rows.
        fused: the layer that stood there.
    """

    def __init__(self, owner: nn.Module, names: tuple[str, ...], fused: Linear) -> None:
        self._owner, self._names, self._pair = owner, names, fused.pair
        self._read = {key: value for key, value in vars(fused).items() if key in fused.SIZES}

    def __call__(self, x: torch.Tensor) -> Any:
        """``(…, columns)`` to ``(…, rows)``, as a pair if the fused layer returned one."""
        y = torch.cat([getattr(self._owner, name)(x) for name in self._names], dim=-1)
        return (y, None) if self._pair else y

    def __getattr__(self, name: str) -> Any:
        read = self.__dict__.get("_read", {})
        if name in read:
            return read[name]
        raise AttributeError(f"{name} of a fused layer, whose parts are layers of their own: {self.__dict__}")


def take_apart(module: nn.Module, fused: Fused) -> nn.Module:
    """Replace fused layers by one ``nn.Linear`` for each tensor of the checkpoint; return the module.

    The parts are children of the fused layer's owner, so parameters, adapters and shards have the released names.

    Args:
        module: built; its parameters may be on the meta device.
        fused: which layers are fused, and the names of their parts from their owner.

    Raises:
        ValueError: a layer has another number of parts.
    """
    names: dict[tuple[str, str], tuple[str, ...]] = {(owner, name): parts for owner, name, parts in fused}
    for owner in list(module.modules()):
        for name, layer in list(owner.named_children()):
            if not isinstance(layer, Merged):
                continue
            kinds = [kind.__name__ for kind in type(owner).__mro__]
            parts = next((names[kind, name] for kind in kinds if (kind, name) in names), None)
            if parts is None:
                continue  # the checkpoint has it fused
            if len(parts) != len(layer.output_sizes):
                raise ValueError(f"{name} of {kinds[0]} has {len(layer.output_sizes)} parts, not {', '.join(parts)}")
            delattr(owner, name)
            for part, linear in zip(parts, _parts(layer), strict=True):
                holder, _, last = part.rpartition(".")
                owner.get_submodule(holder).add_module(last, linear)
            owner.__dict__[name] = FusedCall(owner, parts, layer)
    return module


def _parts(layer: Merged) -> Iterator[nn.Linear]:
    start = 0
    for size in layer.output_sizes:
        part = nn.Linear(layer.in_features, size, bias=layer.bias is not None, device="meta")
        part.weight = nn.Parameter(layer.weight.detach()[start : start + size].clone())
        if layer.bias is not None:
            part.bias = nn.Parameter(layer.bias.detach()[start : start + size].clone())
        start += size
        yield part
