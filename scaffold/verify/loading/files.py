"""Stands in for the safetensors library while a loader runs: files give headers, and what is saved is only noted."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from scaffold.checkpoint.local import read_file
from scaffold.files.reading import is_below
from scaffold.verify.loading.tensor import HeaderTensor, keys_of

DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "U16": torch.uint16,
    "I32": torch.int32,
    "U32": torch.uint32,
    "I64": torch.int64,
    "U64": torch.uint64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
    "C64": torch.complex64,
}


class HeaderFiles:
    """The files that were opened, and which of their tensors were taken."""

    def __init__(self) -> None:
        self.opened: dict[str, dict[str, Any]] = {}
        self.saved: set[str] = set()
        self.renamed: Callable[[str], str] = lambda name: name

    def install(self) -> None:
        """Put this in the place of the library's functions, before anybody imports them."""
        import safetensors
        import safetensors.torch

        files = self

        class safe_open(_Open):
            def __init__(self, filename: Any, framework: str = "pt", device: Any = "cpu") -> None:
                super().__init__(files, os.fspath(filename))

        def load_file(filename: Any, device: Any = "cpu") -> dict[str, torch.Tensor]:
            opened = _Open(files, os.fspath(filename))
            return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118

        def save_file(tensors: dict[str, torch.Tensor], filename: Any, metadata: Any = None) -> None:
            files.saved.update(tensors)
            if is_below(Path(tempfile.gettempdir()), Path(filename).absolute()):
                Path(filename).touch()

        for module in (safetensors, safetensors.torch):
            module.safe_open = safe_open  # type: ignore[attr-defined]
        safetensors.torch.load_file = load_file  # type: ignore[assignment]
        safetensors.torch.save_file = save_file

    def tensors(self, path: str) -> dict[str, Any]:
        """Headers of a file by key.

        Raises:
            FileNotFoundError: there is no such file.
            ScaffoldError: it is not a safetensors file.
        """
        real = os.path.realpath(path)
        if real not in self.opened:
            if not Path(real).is_file():
                raise FileNotFoundError(f"No such file or directory: {path}")
            entries, _ = read_file(Path(real), path, path)
            self.opened[real] = {entry.name: entry for entry in entries}
        return {self.renamed(name): entry for name, entry in self.opened[real].items()}

    def read(self) -> dict[str, dict[str, Any]]:
        """Every tensor of every opened file: dtype and shape by file and key."""
        return {
            path: {name: [entry.dtype, list(entry.shape)] for name, entry in entries.items()}
            for path, entries in self.opened.items()
        }

    def placed(self, module: Any) -> dict[str, Any]:
        """Each parameter and buffer: what it was filled from, its shape; and the parameters that nothing filled."""
        parameters = {name for name, _ in module.named_parameters(remove_duplicate=False)}
        trained = {name for name, tensor in module.named_parameters(remove_duplicate=False) if tensor.requires_grad}
        state = module.state_dict(keep_vars=True)
        placed = {
            name: {
                "from": [list(key) for key in sorted(keys_of(tensor))],
                "shape": list(tensor.shape),
                "parameter": name in parameters,
                # A table that the module made itself; what would be trained, or has no values, is none.
                "computed": not tensor.is_meta and name not in trained,
            }
            for name, tensor in state.items()
            if isinstance(tensor, torch.Tensor)
        }
        return {"placed": placed, "class": type(module).__name__}

    def saved_by(self, module: Any, folder: Path) -> list[str]:
        """Names that ``save_pretrained`` writes."""
        folder.mkdir()
        self.saved.clear()
        module.save_pretrained(str(folder))
        return sorted(self.saved)


class _Open:
    """``safe_open`` of a file's header."""

    def __init__(self, files: HeaderFiles, path: str) -> None:
        self._path, self._entries = os.path.realpath(path), files.tensors(path)

    def __enter__(self) -> _Open:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def keys(self) -> list[str]:
        return sorted(self._entries)

    def offset_keys(self) -> list[str]:
        return list(self._entries)

    def metadata(self) -> dict[str, str]:
        return {"format": "pt"}

    def get_tensor(self, name: str) -> HeaderTensor:
        entry = self._entries[name]
        if entry.dtype not in DTYPES:
            raise ValueError(f"{self._path}: torch has no dtype for {entry.dtype} of {name!r}")
        return HeaderTensor.of(entry.shape, DTYPES[entry.dtype], (self._path, name))

    def get_slice(self, name: str) -> _Slice:
        return _Slice(self.get_tensor(name), self._entries[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())


class _Slice:
    def __init__(self, tensor: HeaderTensor, entry: Any) -> None:
        self._tensor, self._entry = tensor, entry

    def get_shape(self) -> list[int]:
        return list(self._entry.shape)

    def get_dtype(self) -> str:
        return str(self._entry.dtype)

    def __getitem__(self, index: Any) -> Any:
        return self._tensor[index]
