"""The denoiser's configuration and weights: derived from its constructor, proven by the package's own loader."""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import json
import linecache
import re
import textwrap
import traceback
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from scaffold.files.reading import OutsideError, below, read_text
from scaffold.verify.rollout.engine_side.tiny import constants
from scaffold.verify.rollout.engine_side.tiny.asked import asked_by, seen_by, taken_by
from scaffold.verify.rollout.engine_side.tiny.components import EMPTY, NoTinyModelError, hold_places, randomised
from scaffold.verify.rollout.engine_side.tiny.read_files import Layout, find_layout, handing, noting_missing
from scaffold.verify.rollout.engine_side.tiny.shrink import DENOISER, shrunk

# Which flag of a denoiser chose the branch in which a request failed.


def other_branch(error: BaseException, settings: Mapping[str, Any]) -> dict[str, bool]:
    """The flag, by name, with the value that leads past what failed; empty where no flag decided.

    A part of a model can ask for more than a small request has, a number of frames say. The innermost condition
    around a line of the traceback that names a setting which is true or false is the one that is turned.

    Args:
        error: with its traceback.
        settings: of the denoiser, by name; those that are not flags count for nothing.
    """
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.lineno is None:
            continue
        try:
            tree = ast.parse("".join(linecache.getlines(frame.filename)))
        except SyntaxError:
            continue
        for node, taken in reversed(list(_around(tree, frame.lineno))):
            for part in ast.walk(node):
                name = part.attr if isinstance(part, ast.Attribute) else part.id if isinstance(part, ast.Name) else ""
                if settings.get(name) is taken:
                    return {name: not taken}
    return {}


def _around(tree: ast.AST, line: int) -> Iterator[tuple[ast.expr, bool]]:
    """Conditions around a line, from the outermost, each with whether it holds there."""
    for child in ast.iter_child_nodes(tree):
        first, last = getattr(child, "lineno", None), getattr(child, "end_lineno", None)
        if first is not None and last is not None and not first <= line <= last:
            continue
        if isinstance(child, ast.If):
            for part, taken in ((child.body, True), (child.orelse, False)):
                if part and part[0].lineno <= line <= (part[-1].end_lineno or 0):
                    yield child.test, taken
        yield from _around(child, line)


LARGEST = 30_000_000  # parameters of a tiny denoiser
WEIGHTS = "diffusion_pytorch_model.safetensors"
FILE = "model.safetensors"  # of a pipeline that asks for one file of weights


class PortedModule:
    """The modules of a package with a ported denoiser.

    Args:
        package: its dotted name; it is imported.
        facts: ``model`` is the model's name, ``entry`` the denoiser's class, ``renames`` the loader's table,
            ``attribute`` where the pipeline keeps it; ``reads`` says that the pipeline reads files by itself, ``file``
            that its checkpoint is one.
    """

    def __init__(self, package: str, facts: dict[str, Any]) -> None:
        self.facts = facts
        self.source: Any = importlib.import_module(f"{package}.{facts['model']}_model").SOURCE
        runtime, _, _ = type(self.source).__module__.rpartition(".")
        self.weights: Any = importlib.import_module(f"{runtime}.checkpoint")
        self.slots: Any = importlib.import_module(f"{runtime}.slots")
        denoiser = importlib.import_module(f"{package}.{facts['model']}_denoiser")
        self.entry: Any = getattr(denoiser, facts["entry"])
        self.build: Any = denoiser.build_denoiser
        self.fitted: dict[str, Any] = {}
        self.replaced: dict[str, tuple[Any, Any]] = {}  # sizes that no configuration gives, see ``constants``
        self.class_name: str = self.entry.__name__
        self.reads, self.file, self.own = (bool(facts.get(name)) for name in ("reads", "file", "own"))
        self.released: dict[str, Any] = facts.get("given", {}).get("released", {})
        self.shared = False  # whether the pipeline's other parts lie in the denoiser's folder
        self.layout: Layout | None = None
        self.sections: set[str] = set()  # tables of the configuration that the builder asks for
        self.configurations: set[Path] = set()  # that the builder looks for by itself, and settings are written to
        self._held: set[Path] = set()  # that it misses where it does not look first

    @property
    def classes(self) -> dict[str, str]:
        """The denoiser's class by its module: the package's, and the real pipeline's."""
        return {self.build.__module__: self.facts["entry"], self.facts["module"]: self.facts["class"]}

    def fit(self, error: Exception, channels: int | None) -> bool:
        """Give the class's name that a pipeline wants, or switch a part of the denoiser on or off.

        A part that the pipeline uses and the defaults leave out: the constructor says under which condition it makes
        it, a flag, or a width that is not nothing. A part that fails: under which flag it runs, see ``flags``.

        Returns:
            Whether a setting was changed.
        """
        named = re.search(r"_class_name\W+(\w+)", str(error))
        if named is not None and self.class_name in str(error) and named[1] != self.class_name:
            self.class_name = named[1]
            return True
        missing = re.search(rf"'{self.entry.__name__}' object has no attribute '(\w+)'", str(error))
        defaults = taken_by(self.entry)
        if missing is None:
            turned = other_branch(error, {name: value for name, value in defaults.items() if name not in self.fitted})
            self.fitted |= turned
            return bool(turned)
        found: dict[str, Any] = {}
        for name in _conditions(self.entry, missing[1]) & defaults.keys() - self.fitted.keys():
            if defaults[name] is False:
                found[name] = True
            elif defaults[name] == 0 and channels:
                found[name] = channels
        self.fitted |= found
        return bool(found)

    def settings(self, folder: Path, given: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
        """A tiny configuration: what the constructor takes, and what the builder asks of the configuration.

        Args:
            folder: the checkpoint.
            given: values from ``scaffold.toml``, which stand as they are.
            dtype: of the weights.
        """
        asked = self._asked(folder, dtype)
        found = {**taken_by(self.entry), **asked}
        # What is nothing by default is not a setting of a configuration: the engine's own arguments are of that kind.
        stated = {name: value for name, value in found.items() if value not in (None, "") and _plain(value)}
        stated = {name: value for name, value in stated.items() if name not in given}
        return {**shrunk(stated, DENOISER), **given}

    def _config(self, folder: Path, dtype: torch.dtype) -> Any:
        """What the builder takes."""
        return self.weights.EngineConfig(str(folder / FILE if self.file else folder), dtype)

    def _built(self, folder: Path, dtype: torch.dtype) -> tuple[Any, Any]:
        """The denoiser with the layers that training has, and its sources of weights."""
        module, sources = self.build(self._config(folder, dtype))
        apart = getattr(self.weights, "take_apart", None)  # an older runtime holds texts, whose layers are apart
        return (module if apart is None else apart(module, self.source.fused)), sources

    def _asked(self, folder: Path, dtype: torch.dtype) -> dict[str, Any]:
        def repair(error: Exception) -> bool:
            held = hold_places(folder, error, self.released)
            self._held |= {path for path in held if path.suffix == ".json"}
            return bool(held)

        ask = partial(asked_by, self.build, partial(self._config, folder, dtype), self.entry, repair)
        if not self.reads:
            return ask()
        with self._files(folder), noting_missing(folder, self.build.__globals__) as missing:
            ask()
            for path in missing:
                below(folder, path).write_text(EMPTY, encoding="utf-8")
            self.configurations |= missing
            return ask(sections=self.sections)

    @contextlib.contextmanager
    def _files(self, folder: Path) -> Iterator[None]:
        """Inside the block, files that the builder reads have what makes a denoiser of any size."""
        with handing(self.weights, self.layout.marks, folder) if self.layout else contextlib.nullcontext():
            yield

    def write(self, folder: Path, given: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
        """Write configuration and weights where the package's loader looks for them; returns what it is built of."""
        from safetensors.torch import save_file

        place = self._place(folder)
        if not self.own:
            index = json.dumps({"_class_name": self.facts["pipeline"]})
            (folder / "model_index.json").write_text(index, encoding="utf-8")
            place.mkdir(parents=True, exist_ok=True)
        try:
            self._find_layout(folder, dtype)
            settings = self._small_settings(folder, given, dtype)
            self._find_layout(folder, dtype)
            with seen_by(self.entry) as seen, self._files(folder):
                module, sources = self._built(folder, dtype)
        except NoTinyModelError:
            raise
        except Exception as error:
            line = " ".join(str(error).split())[:300]
            config = read_text(place / "config.json")
            raise NoTinyModelError(
                f"{self.entry.__name__} cannot be built of {config}: {type(error).__name__}: {line};"
                " set values in [verify.denoiser] of scaffold.toml"
            ) from error
        randomised(module)
        tensors = {n: value.detach().to(dtype, copy=True).contiguous() for n, value in module.named_parameters()}
        if self.own:
            self._write_own(module, tensors, folder)
            return settings
        if self.layout is not None:
            files = self.layout.files(tensors)
        else:
            subfolder, before, _ = sources[0]
            own = f"{self.facts['attribute']}."
            start = own.removeprefix(before) if own.startswith(before) else ""
            self.shared = bool(start)
            keys = self._keys(module, sources)
            state = {start + keys[name]: tensor for name, tensor in tensors.items()}
            files = {f"{subfolder or '.'}/{WEIGHTS}": state}
        for path, state in files.items():
            try:
                save_file(state, below(folder, path))
            except OutsideError as error:
                raise NoTinyModelError(f"the pipeline reads a file of its own: {error}") from None
        return {**settings, **seen, **{name: small for name, (_, small) in self.replaced.items()}}

    def _place(self, folder: Path) -> Path:
        """Where the denoiser's configuration lies."""
        return folder if self.own else folder / "transformer"

    def _write_own(self, module: Any, tensors: dict[str, torch.Tensor], folder: Path) -> None:
        """Write weights as checkpoints have them that the pipeline's loader takes apart: several layers in one tensor.

        Raises:
            NoTinyModelError: no name is found under which the loader takes a parameter.
        """
        checkpoint = self.weights.Checkpoint()
        shapes = {name: tensor.shape for name, tensor in tensors.items()}
        for path, parts in self._fused(module):
            for kind in ("weight", "bias"):
                names = [f"{path}.{part}.{kind}" for part in parts]
                if not all(name in shapes for name in names):
                    continue
                shape = torch.Size((sum(shapes[name][0] for name in names), *shapes[names[0]][1:]))
                for layer in self.facts["fused_names"]:
                    key = f"{path}.{layer}.{kind}"
                    tried = self.weights.Checkpoint()
                    with contextlib.suppress(LookupError):  # a name that the loader does not know
                        self.slots.trace(module, [(key, shape, FILE, key)], tried, self.source)
                    rows = sorted(row for name in tried.cut for row in _rows(tried.cut[name][2]))
                    if set(tried.cut) == set(names) and rows == list(range(shape[0])):
                        checkpoint.cut |= tried.cut
                        checkpoint.heights |= tried.heights
                        break
        single = [name for name in tensors if name not in checkpoint.cut]
        for name in single:
            keys = [key for key in self._candidates(name)[::-1] if self._taken(module, key, tensors[name]) == {name}]
            if not keys:
                raise NoTinyModelError(f"under which key the loader finds {name!r} is not known")
            checkpoint.keys[name] = (FILE, keys[0])
        self.weights.write_weights(str(folder), tensors.items(), checkpoint)

    def _fused(self, module: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Paths in the module, and the layers there that may be one tensor of a checkpoint."""
        for path, inner in module.named_modules():
            for entry in self.facts["fused"]:
                if any(base.__name__ == entry["owner"] for base in type(inner).__mro__):
                    yield path, tuple(entry["parts"])
            if type(inner).__name__ in ("Expert", "GatedMLP"):
                yield path, ("gate_proj", "up_proj")

    def _find_layout(self, folder: Path, dtype: torch.dtype) -> None:
        """Find out what the files are like that the builder reads by itself.

        Raises:
            NoTinyModelError: it takes nothing that it was handed.
        """
        if not self.reads:
            return

        def build() -> Any:
            return self._built(folder, dtype)

        parts = self.layout.parts if self.layout else {}
        self.layout = find_layout(self.weights, build, self.facts["renames"], folder)
        if self.layout is None:
            raise NoTinyModelError(f"under which keys the pipeline finds {self.entry.__name__} in a file is not known")
        self.layout.parts = parts

    def _small_settings(self, folder: Path, given: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
        """Write the configuration; parts whose size no setting says are switched off, where a flag does that.

        Raises:
            NoTinyModelError: the module stays large.
        """
        while True:
            settings = self.settings(folder, {**self.fitted, **given}, dtype)
            named = settings if self.own else {"_class_name": self.class_name, **settings}
            (self._place(folder) / "config.json").write_text(json.dumps(named), encoding="utf-8")
            for path in self.configurations:
                small = dict.fromkeys(self.sections, settings) if self.sections else settings
                path.write_text(json.dumps({**json.loads(read_text(path)), **small}), encoding="utf-8")
            try:
                with self.weights.parameters_on_meta(), self._files(folder):
                    module, _ = self._built(folder, dtype)
            except Exception:
                if self._held <= self.configurations:
                    raise
                self.configurations |= self._held  # what it lacks stands there
                continue
            total = _count(module)
            if total <= LARGEST:
                return settings
            if not self._held <= self.configurations:
                self.configurations |= self._held  # its sizes stand there and not in the engine's configuration
                continue
            most = next((name for name, child in module.named_children() if _count(child) > total / 2), "")
            flags = [name for name in _conditions(self.entry, most) if settings.get(name) is True and name not in given]
            if not flags and not self._replace_constants(folder, given, dtype):
                raise NoTinyModelError(
                    f"{self.entry.__name__} has {total:,} parameters, whose sizes are constants of its source"
                )
            self.fitted |= dict.fromkeys(flags, False)

    def _replace_constants(self, folder: Path, given: dict[str, Any], dtype: torch.dtype) -> bool:
        """Have the class built with small sizes in place of those that its builder writes out; tells whether it is."""
        if self.replaced:
            return False
        with seen_by(self.entry) as seen, self.weights.parameters_on_meta(), self._files(folder):
            self.build(self._config(folder, dtype))
        arguments = inspect.signature(self.entry.__init__).parameters
        asked = {name: value for name, value in seen.items() if name in arguments and value is not None}
        small = {**shrunk({name: value for name, value in asked.items() if _plain(value)}, DENOISER), **given}
        self.replaced = {name: (value, small[name]) for name, value in asked.items() if small.get(name, value) != value}
        constants.build_small(self.entry, self.replaced)
        return bool(self.replaced)

    def _keys(self, module: Any, sources: Any) -> dict[str, str]:
        """A key for each parameter that the loader takes to it."""
        found: dict[str, str] = {}
        for name, parameter in module.named_parameters():
            for key in self._candidates(name):
                if self._taken(module, key, parameter) == {name}:
                    found[name] = key
                    break
            else:
                raise NoTinyModelError(f"under which key the loader finds {name!r} is not known")
        return found

    def _candidates(self, name: str) -> list[str]:
        keys = [name]
        for saved, own in (pair for pair in self.facts["renames"] if all(pair) or not self.own):
            keys += [key.replace(own, saved) for key in keys if own in key]
        return keys

    def _taken(self, module: Any, key: str, tensor: Any) -> set[str]:
        """Names of the parameters to which the loader takes one tensor."""
        checkpoint = self.weights.Checkpoint()
        try:
            self.slots.place(module, iter([(key, tensor.detach(), WEIGHTS, key)]), checkpoint, self.source)
        except Exception:
            return set()
        return set(checkpoint.keys)


def _rows(runs: list[tuple[int, int]]) -> Iterator[int]:
    for first, count in runs:
        yield from range(first, first + count)


def _count(module: Any) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_plain(item) for item in value)
    if isinstance(value, dict):
        return all(_plain(item) for item in value.values())
    return value is None or isinstance(value, bool | int | float | str)


def _conditions(owner: Any, attribute: str) -> set[str]:
    """Names in the conditions under which a constructor sets an attribute."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(owner.__init__)))
    found: set[str] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.If):
            continue
        stored = {t.attr for part in node.body for t in ast.walk(part) if isinstance(t, ast.Attribute)}
        if attribute in stored:
            found |= {name.id for name in ast.walk(node.test) if isinstance(name, ast.Name)}
    return found
