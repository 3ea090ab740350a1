"""Altered copies of a fetched vllm-omni: the parts a pipeline reaches, written to a folder and edited as text."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

from scaffold.upstream import UpstreamSource, locate

PIPELINE = "vllm_omni/diffusion/models/bagel/pipeline_bagel.py"
MODEL = "vllm_omni/diffusion/models/bagel/bagel_transformer.py"
REGISTRY = "vllm_omni/diffusion/registry.py"
_KEPT = (
    *("vllm_omni/inputs/", "vllm_omni/model_executor/layers/", "vllm_omni/diffusion/"),
    *("vllm_omni/config/pipeline_registry.py", "vllm_omni/entrypoints/cli/serve.py"),
)
_MODELS = "vllm_omni/diffusion/models/"


class Copy:
    """A writable copy of one version's source, with these folders of models and the files beside them."""

    def __init__(self, source: UpstreamSource, root: Path, folders: tuple[str, ...] = ("bagel",)) -> None:
        self.root = root
        (root / "vllm_omni").mkdir(parents=True)
        (root / "vllm_omni/__init__.py").write_text("")
        for name in source.files():
            if not name.startswith(_KEPT):
                continue
            if name.startswith(_MODELS) and name.count("/") > 3 and name.split("/")[3] not in folders:
                continue
            target = root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(source.read(name), encoding="utf-8")

    def source(self) -> UpstreamSource:
        return locate(str(self.root))

    def read(self, name: str) -> str:
        return (self.root / name).read_text(encoding="utf-8")

    def write(self, name: str, text: str) -> None:
        ast.parse(text)
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text, encoding="utf-8")

    def replace(self, name: str, old: str, new: str) -> None:
        """Replace every occurrence; the text must be there."""
        text = self.read(name)
        assert old in text, f"{old!r} is not in {name}"
        self.write(name, text.replace(old, new))

    def rewrite(self, name: str, change: Callable[[str], str]) -> None:
        before = self.read(name)
        after = change(before)
        assert after != before
        self.write(name, after)

    def rename_words(self, names: dict[str, str], files: tuple[str, ...] = (PIPELINE, MODEL, REGISTRY)) -> None:
        """Rename identifiers everywhere in some files, strings that name classes included."""
        pattern = re.compile(r"\b(" + "|".join(map(re.escape, names)) + r")\b")
        for file in files:
            self.write(file, pattern.sub(lambda m: names[m.group(1)], self.read(file)))

    def move_methods(self, name: str, cls: str, methods: tuple[str, ...], base: str, into: str) -> None:
        """Move methods of a class to a new base class in another module."""
        text = self.read(name)
        lines = text.splitlines(keepends=True)
        tree = ast.parse(text)
        node = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == cls)
        imports = "".join(
            ast.get_source_segment(text, n) + "\n" for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)
        )
        spans = []
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and method.name in methods:
                first = min([method.lineno, *(d.lineno for d in method.decorator_list)])
                spans.append((first - 1, method.end_lineno))
        assert len(spans) == len(methods)
        moved = "\n".join("".join(lines[a:b]) for a, b in spans)
        module = into.rpartition("/")[2].removesuffix(".py")
        self.write(into, f"{imports}\n\nclass {base}:\n{moved}")
        for a, b in reversed(spans):
            del lines[a:b]
        head = f"class {cls}("
        changed = "".join(lines).replace(head, f"class {cls}({base}, ", 1)
        after = changed.index("\nfrom .") if "\nfrom ." in changed else changed.index("\nfrom vllm_omni")
        self.write(name, changed[:after] + f"\nfrom .{module} import {base}" + changed[after:])


class Overlay(UpstreamSource):
    """A version whose files have some texts replaced, each of which must be there once or more."""

    def __init__(self, source: UpstreamSource, edits: dict[str, tuple[tuple[str, str], ...]]) -> None:
        super().__init__(source.version, source.label)
        self._below = source
        for name, pairs in edits.items():
            text = source.read(name)
            for old, new in pairs:
                assert old in text, f"{old!r} is not in {name}"
                text = text.replace(old, new)
            ast.parse(text)
            self._texts[name] = text

    def exists(self, path: str) -> bool:
        return self._below.exists(path)

    def files(self, prefix: str = "") -> list[str]:
        return self._below.files(prefix)

    def _bytes(self, path: str) -> bytes:
        return self._below._bytes(path)
