"""How a package that says nothing of its sizes builds its module: its own loading code, given a made folder, tells.

Every JSON file that the package names is there; what is read of it is noted. The constructor of the training module is
met before any weight is: its arguments are what the sizes in the files lead to.
"""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from safetensors.torch import save_file

from scaffold.reading import read_text
from scaffold.verify.measured import NotDrivableError
from scaffold.verify.subject.roles import on_meta

GUESS = 32  # stands for a size that the package reads and nobody gives, until its role is known
TRIES = 60
_MARK = "omni_scaffold_file"
SAFETENSORS = ".safetensors"
WEIGHTS = (SAFETENSORS, ".bin", ".pt", ".pth")  # all but the first are torch's own format
_MOST_WORDS = 10_000_000  # larger numbers are no ids
_CONFIG, _WEIGHTS = re.compile(r"[\w./-]+\.json"), re.compile(r"[\w./-]+\.(safetensors|bin|pth?)")


class _Met(BaseException):
    """The constructor was reached; no handler of the package's is meant."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__()
        self.arguments = args, kwargs


class _Section(dict[str, Any]):
    """An object of a JSON file that notes which of its keys are asked for."""

    def __init__(self, loading: OwnLoading, path: str, given: Mapping[str, Any]) -> None:
        super().__init__()
        self.loading, self.path = loading, path
        for key in {*given, *loading.keys_below(path)}:
            super().__setitem__(key, self._answer(key, given.get(key)))

    def _answer(self, key: str, given: Any) -> Any:
        return self.loading.answer(f"{self.path}.{key}" if self.path else key, given)

    def __getitem__(self, key: str) -> Any:
        self.loading.note(f"{self.path}.{key}", required=True)
        if key not in self:
            super().__setitem__(key, self._answer(key, None))
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        name = f"{self.path}.{key}"
        self.loading.note(name, required=False)
        if super().__contains__(key):
            return super().__getitem__(key)
        if isinstance(default, int) and not isinstance(default, bool):
            return self.loading.values.setdefault(name, default)
        return _Section(self.loading, name, {}) if isinstance(default, dict) else default

    def __contains__(self, key: object) -> bool:
        self.loading.note(f"{self.path}.{key}", required=False)
        return super().__contains__(key)

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        """A copy notes nothing: configuration classes copy what they are given, and keep it."""
        return copy.deepcopy(dict(self), memo)


class OwnLoading:
    """What the package's ``build_module`` reads and builds.

    Args:
        subject: the package.

    Raises:
        NotDrivableError: the constructor is not reached.
    """

    def __init__(self, subject: Any) -> None:
        self.subject = subject
        words = literals(subject.folder)
        self.folders = ["", *_folders(subject.folder)]
        self.files = [word for word in words if _CONFIG.fullmatch(word)] or ["config.json"]
        self.weights = weight_files(subject.folder)
        self.values: dict[str, int] = {}
        self.guessed: list[str] = []
        self._sections: dict[str, None] = {}
        self._refused: set[str] = set()  # names that a section was given and that no constructor takes from it
        self._given: set[str] = set()  # names that the files hold
        self._last = ""  # what was read last: a file's object, or a key
        self._asked: dict[str, bool] = {}
        self._read: dict[str, dict[str, Any]] = {}
        self._learn_all()

    def keys_below(self, path: str) -> list[str]:
        """Keys of a section for which there are values or sections."""
        start = f"{path}."
        known = [name for name in (*self.values, *self._sections) if name.startswith(start)]
        return list(dict.fromkeys(name.removeprefix(start).partition(".")[0] for name in known))

    def note(self, name: str, *, required: bool) -> None:
        """A key is asked for."""
        self._asked.pop(name, None)
        self._asked[name] = required
        self._last = name

    def answer(self, name: str, given: Any) -> Any:
        """The value of a key: a section, the size of that name, what the checkpoint says, or a guess."""
        if isinstance(given, dict) or (given is None and (name in self._sections or self.keys_below(name))):
            return _Section(self, name, given or {})
        if isinstance(given, int) and not isinstance(given, bool):
            return self.values.setdefault(name, given)
        return given if given is not None else self._guess(name)

    def _guess(self, name: str) -> int:
        if name not in self.values:
            self.guessed.append(name)
        return self.values.setdefault(name, GUESS)

    def arguments(self, values: Mapping[str, int]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments of the constructor where the files hold ``values``.

        Raises:
            Exception: what the package raises before it.
        """
        with mock.patch.object(self, "values", dict(values)):
            return self._meet()

    def _meet(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        self._given = {*self.values}
        try:
            with tempfile.TemporaryDirectory() as folder, self._watched():
                self._write_marks(Path(folder))
                self._build(folder)
        except _Met as met:
            return met.arguments
        raise NotDrivableError("build_module ends without having built the training module")

    def documents(self, values: Mapping[str, int]) -> dict[str, dict[str, Any]]:
        """Content of each JSON file that is read, with ``values`` in it."""
        found = {file: json.loads(json.dumps(content)) for file, content in self._read.items()}
        for name, value in values.items():
            file, _, path = name.partition(":")
            place = found.setdefault(file, {})
            *sections, key = path.lstrip(".").split(".")
            for section in sections:
                place = place.setdefault(section, {})
            place[key] = value
        return found

    def _learn_all(self) -> None:
        last = ""
        for _ in range(TRIES):
            before = dict(self.values)
            try:
                args, kwargs = copy.deepcopy(self._meet())
                on_meta(partial(self.subject.module_class, *args, **kwargs))
                if self.values == before:
                    return  # what was learned is in the files now, and read there
            except NotDrivableError:
                raise
            except Exception as error:
                last = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
                if not self._learn(error):
                    break
        raise NotDrivableError(
            f"what build_module reads of a checkpoint's configuration was not found out ({last}); give one with"
            " --checkpoint DIR"
        )

    def _learn(self, error: Exception) -> bool:
        """Put into the files what an error says is missing; whether there was something new."""
        text = str(error)
        for word in re.findall(r"unexpected keyword argument '(\w+)'", text):
            for name in [name for name in self.values if name.endswith(f".{word}") and name not in self._refused]:
                del self.values[name]
                self._refused.add(name)
                return True
        if re.search(r"'int' object|not int\b|of type 'int' is not|mapping, not", text):
            for name in reversed(self._asked):
                if name in self.values:
                    del self.values[name]
                    self.guessed = [guess for guess in self.guessed if guess != name]
                    self._sections[name] = None
                    return True
        unseen = isinstance(error, KeyError) or ("missing" in text and "argument" in text)
        new = False
        for word in re.findall(r"'(\w+)'", text):
            names = [name for name in reversed(self._asked) if name.endswith(f".{word}")]
            if not names and unseen and self._read:
                # A whole section went on as it is: the last one of which no key was asked for by itself.
                whole = [path for path in self._sections if not any(key.startswith(f"{path}.") for key in self._asked)]
                names = [f"{[next(iter(self._read)) + ':', *whole][-1]}.{word}"]
            if names and names[0] not in self.values:
                self._guess(names[0])
                new = True
        return new

    def _build(self, folder: str) -> None:
        subject = self.subject
        subject.training.build_module(subject.settings_without_image(local_path=folder), torch.float32)

    def _write_marks(self, folder: Path) -> None:
        given = Path(self.subject.job["checkpoint"]) if self.subject.job["checkpoint"] else None
        for below in self.folders:
            for file in self.files:
                name = below + file
                content: dict[str, Any] = {}
                if given is not None and (given / name).is_file():
                    content = json.loads(read_text(given / name))
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                if "weight_map" not in content:
                    content[_MARK] = name
                target.write_text(json.dumps(content), encoding="utf-8")
        for file in self.weights:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            if file.endswith(SAFETENSORS):
                save_file({}, folder / file)
            else:
                torch.save({}, folder / file)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Answer what is read of the marked files, and stop at the constructor."""
        loads, kind = json.loads, self.subject.module_class

        def read(text: Any, *args: Any, **kwargs: Any) -> Any:
            content = loads(text, *args, **kwargs)
            if not isinstance(content, dict) or _MARK not in content:
                return content
            file = content.pop(_MARK)
            self._read[file] = content
            self._last = f"{file}:"
            return _Section(self, f"{file}:", content)

        def met(_: Any, *args: Any, **kwargs: Any) -> None:
            raise _Met(args, kwargs)

        with ExitStack() as stack:
            stack.enter_context(mock.patch.object(json, "loads", read))  # json.load calls it, too
            stack.enter_context(mock.patch.object(kind, "__init__", met))
            for part in (part for part in self._own_classes() if part is not kind):
                begin = self._learning_defaults(vars(part)["__init__"])
                stack.enter_context(mock.patch.object(part, "__init__", begin))
            yield

    def _own_classes(self) -> list[type]:
        """Classes of the package that hold sizes and are no modules, and a library's configurations that it uses."""
        package = self.subject.package.__name__
        modules = [module for name, module in sys.modules.items() if f"{name}.".startswith(f"{package}.")]
        found = {value: None for module in modules for value in vars(module).values() if isinstance(value, type)}
        return [
            kind
            for kind in found
            if (f"{kind.__module__}.".startswith(f"{package}.") or hasattr(kind, "from_dict"))
            and "__init__" in vars(kind)
            and not issubclass(kind, torch.nn.Module)
        ]

    def _learning_defaults(self, begin: Callable[..., None]) -> Callable[..., None]:
        """Note the sizes that a class has itself for what a section, spread into its constructor, leaves out."""
        parameters = [p for p in list(inspect.signature(begin).parameters.values())[1:] if type(p.default) is int]

        @functools.wraps(begin)
        def noting(made: Any, *args: Any, **kwargs: Any) -> None:
            left = {p.name: p.default for p in parameters if p.name not in kwargs} if not args else {}
            for parameter, default in left.items():
                name = self._left_out(parameter, kwargs)
                if name is None or name in self._refused:
                    continue
                if name in self._given:  # it stands in the file, and no matter
                    self._refused.add(name)
                    del self.values[name]
                else:
                    self.values.setdefault(name, default)
            begin(made, *args, **kwargs)

        return noting

    def _left_out(self, parameter: str, given: Mapping[str, Any]) -> str | None:
        """Name of the key that would have given an argument: one that was looked for, or one of a section as it is."""
        looked_for = [name for name in self._asked if name.endswith(f".{parameter}")]
        if looked_for:
            return looked_for[-1] if not self._asked[looked_for[-1]] else None
        section = self._last
        is_section = section.endswith(":") or section in self._sections
        whole = is_section and not any(name.startswith(f"{section}.") for name in self._asked)
        return f"{section}.{parameter}" if whole and given.keys() <= {*self.keys_below(section)} else None


def weight_files(package: Path) -> list[str]:
    """Where the package's code may look for weights below a checkpoint's folder."""
    named = [word for word in literals(package) if _WEIGHTS.fullmatch(word)] or ["model.safetensors"]
    return [below + file for below in ("", *_folders(package)) for file in named]


def _folders(package: Path) -> list[str]:
    """Folders of a checkpoint that its code may look into."""
    return [f"{word}/" for word in literals(package, joined=True) if re.fullmatch(r"[\w-]+", word)]


def stated_ids(folder: Path) -> Iterator[tuple[Path, int]]:
    """Each list or tuple of whole numbers in the package's code that may be token ids: its file and the largest."""
    for file in sorted(folder.rglob("*.py")):
        try:
            tree = ast.parse(read_text(file))
        except (OSError, SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            items = node.elts if isinstance(node, ast.List | ast.Tuple) else []
            found = [item.value for item in items if isinstance(item, ast.Constant) and type(item.value) is int]
            if found and max(found) < _MOST_WORDS:
                yield file, max(found)


def literals(folder: Path, *, joined: bool = False) -> list[str]:
    """Strings in the package's code, each once, in the order of its files; or those alone that paths are joined of."""
    found: dict[str, None] = {}
    for file in sorted(folder.rglob("*.py")):
        try:
            tree = ast.parse(read_text(file))
        except (OSError, SyntaxError, ValueError):
            continue
        nodes: list[ast.AST] = list(ast.walk(tree))
        if joined:
            calls = [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
            sums = [node for node in nodes if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)]
            nodes = [part for call in calls if call.func.attr in ("join", "joinpath") for part in call.args]  # type: ignore[attr-defined]
            nodes += [part for both in sums for part in (both.left, both.right)]
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 200:
                found.setdefault(node.value)
    return list(found)
