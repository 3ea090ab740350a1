"""``forward`` never waits for the device."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from scaffold.verify.executed_text import executed_files
from scaffold.verify.measured import Measured

ID = "host-synchronisation"
TITLE = "forward and backward read no tensor back to the host"
PITFALLS = (42,)
LIMIT = 0.0  # each read drains the device's queue: 0.31-0.38 of the matrix rate with them, 0.49-0.52 without

# Operators whose result, or whose shape, depends on values.
_OPERATORS = {
    "_local_scalar_dense",
    "nonzero",
    "nonzero_numpy",
    "masked_select",
    "equal",
    "is_nonzero",
    "_unique",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
    "unique_dim_consecutive",
    "repeat_interleave.Tensor",
    "argwhere",
    "bincount",
    "histc",
}
_METHODS = {"item", "tolist", "numpy", "cpu", "__bool__", "__int__", "__float__", "__index__", "__array__"}


class _Operators(TorchDispatchMode):  # type: ignore[no-untyped-call,unused-ignore]
    """Notes operators that make the host wait."""

    def __init__(self, folder: Path, files: set[str], seen: dict[str, str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call,unused-ignore]
        self._folder, self._files, self._seen = folder, files, seen

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.__name__
        plain = name.rpartition(".")[0] if name.endswith((".default", ".Tensor")) else name
        masked = plain.split(".")[0] in ("index", "index_put", "index_put_") and any(
            isinstance(i, torch.Tensor) and i.dtype in (torch.bool, torch.uint8) for i in args[1] or ()
        )
        if plain in _OPERATORS or name in _OPERATORS or masked:
            what = "boolean index" if masked else plain.lstrip("_")
            self._seen.setdefault(f"{what}{_place(self._folder, self._files)}", name)
        return function(*args, **(kwargs or {}))


class _Methods(TorchFunctionMode):
    """Notes methods that take a tensor's values to Python without an operator."""

    def __init__(self, folder: Path, files: set[str], seen: dict[str, str]) -> None:
        super().__init__()
        self._folder, self._files, self._seen = folder, files, seen

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        if name in _METHODS and isinstance(args[0] if args else None, torch.Tensor):
            self._seen.setdefault(f"{name}{_place(self._folder, self._files)}", name)
        return function(*args, **(kwargs or {}))


def _place(folder: Path, files: set[str]) -> str:
    """The innermost line on the stack that is the package's, or of the files that have its denoiser."""
    for frame in reversed(traceback.extract_stack()):
        if Path(frame.filename).parent == folder or frame.filename in files:
            return f" at {Path(frame.filename).name}:{frame.lineno}"
    return ""


def _denoiser_files(module: Any) -> set[str]:
    """What is executed of vllm-omni, and the file of the class, which diffusers may have."""
    return {*executed_files(), str(getattr(sys.modules.get(type(module).__module__), "__file__", ""))}


def run(subject: Any) -> Measured:
    """Watch both branches of a ragged batch, forward and backward, gradient checkpointing included."""
    module = subject.train(subject.new_module())
    if module._supports_gradient_checkpointing:
        module.enable_gradient_checkpointing()
    pair = subject.inputs(module)
    seen: dict[str, str] = {}
    files = _denoiser_files(module)
    with _Methods(subject.folder, files, seen), _Operators(subject.folder, files, seen):
        for inputs in pair:
            if inputs is not None:
                subject.velocity(module, inputs).float().square().mean().backward()
    return Measured("no operator waits for the device", sorted(seen), float(len(seen)), LIMIT, "places")


def run_recorded(subject: Any) -> Measured:
    """Watch as for every package, except for reads of the pipeline's denoiser, which the rollout makes, too."""
    found = run(subject)
    mine = {file.name for file in subject.folder.glob("*.py")} - {f"{subject.spec['names']['model']}_denoiser.py"}
    places = {line: line.rpartition(" at ")[2].partition(":")[0] for line in found.problems}
    # The backward pass of such a read has no line in Python.
    again = {line.rpartition(" at ")[0] for line, place in places.items() if place not in (*mine, line)}
    own = [line for line, place in places.items() if place in (*mine, line) and line not in again]
    told = f"{found.found}; the denoiser reads back at {len(found.problems) - len(own)} places, as upstream's"
    return Measured(told, own, float(len(own)), found.limit, found.unit)
