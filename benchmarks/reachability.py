"""Name what no public command reaches: modules, functions, classes and facts that nothing reads.

    python benchmarks/reachability.py              # definitions without a reader, by room, with their lines
    python benchmarks/reachability.py --modules    # whole modules only
    python benchmarks/reachability.py --sizes      # files and lines by room, and nothing else

Roots are the commands, the Python interface, and what a folder that is found by walking holds; from there a name that
is mentioned in live code (a name, an attribute, an import, a word in a string or in a template) is taken for a reader.
So everything that is listed has no reader, and some of what is not listed has none either: two functions of one name
keep each other. A name that is put together from parts (`f"_builtin_{name}"`) is listed although it has a reader: look
before anything goes. Tests read nothing here: what only a test calls is listed.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TREES = ("scaffold", "runtime")
ENTRIES = ("scaffold.__main__", "scaffold.api", "scaffold.cli")
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass
class Definition:
    """One function, class or assignment of a module: where it stands, and the words that its text mentions."""

    module: str
    name: str
    line: int
    lines: int
    words: frozenset[str] = frozenset()
    root: bool = False


@dataclass
class Module:
    """A file: its definitions, and the words and modules that importing it alone brings along."""

    name: str
    path: Path
    lines: int
    definitions: list[Definition] = field(default_factory=list)
    words: set[str] = field(default_factory=set)
    imports: set[str] = field(default_factory=set)
    walks: bool = False


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--modules", action="store_true", help="whole modules only")
    options.add_argument("--sizes", action="store_true", help="files and lines by room, and nothing else")
    asked = options.parse_args()
    modules = {module.name: module for tree in TREES for module in _modules(ROOT / tree)}
    if asked.sizes:
        _print_sizes(modules)
        return
    live_modules, live_words = _reach(modules)
    dead = [module for name, module in modules.items() if name not in live_modules and module.lines]
    print(f"modules that nothing imports: {len(dead)} files, {sum(module.lines for module in dead)} lines")
    for module in dead:
        print(f"  {module.path.relative_to(ROOT)}  {module.lines}")
    if asked.modules:
        return
    rooms: dict[str, list[Definition]] = defaultdict(list)
    for module in modules.values():
        if module.name in live_modules:
            for definition in module.definitions:
                if not definition.root and definition.name not in live_words:
                    rooms[_room(module.path)].append(definition)
    for room, found in sorted(rooms.items()):
        print(f"{room}: {len(found)} definitions without a reader, {sum(one.lines for one in found)} lines")
        for one in found:
            print(f"  {modules[one.module].path.relative_to(ROOT)}:{one.line}  {one.name}  {one.lines}")
    _print_facts(modules, live_modules)


def _modules(folder: Path) -> Iterator[Module]:
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if "tests" in parts:
            continue
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        module = Module(name, path, text.count("\n"))
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        module.walks = "iter_modules" in text
        module.imports = set(_imports(tree, package))
        for statement in tree.body:
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                module.definitions.extend(_definitions(name, statement))
                for decorator in statement.decorator_list:
                    module.words |= _words(decorator)
            elif isinstance(statement, (ast.Assign, ast.AnnAssign)) and _plain_name(statement):
                module.definitions.append(_definition(name, _plain_name(statement), statement))
            elif not isinstance(statement, (ast.Import, ast.ImportFrom)):
                module.words |= _words(statement)
        yield module


def _definitions(module: str, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> Iterator[Definition]:
    """The definition, and the methods of a class each by itself; what a class's own body mentions is the class's."""
    if not isinstance(node, ast.ClassDef):
        yield _definition(module, node.name, node)
        return
    methods = [part for part in node.body if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef))]
    own = _definition(module, node.name, node)
    rest = [part for part in node.body if part not in methods]
    mentioned = [*rest, *node.bases, *node.keywords, *(dec for part in methods for dec in part.decorator_list)]
    # What a base of another library calls by name cannot be seen: its methods are the class's own text.
    foreign = any(not isinstance(base, ast.Name) or base.id not in {"object", "Protocol"} for base in node.bases)
    kept = [part for part in methods if foreign or part.name.startswith("__") or part.decorator_list]
    own.words = frozenset().union(*(_words(part) for part in [*mentioned, *kept])) if mentioned or kept else frozenset()
    own.lines -= sum(_length(part) for part in methods if part not in kept)
    yield own
    for part in methods:
        if part not in kept:
            yield _definition(module, part.name, part)


def _definition(module: str, name: str, node: ast.stmt) -> Definition:
    decorated = bool(getattr(node, "decorator_list", [])) and not isinstance(node, ast.ClassDef)
    root = decorated or (name.startswith("__") and name.endswith("__"))
    return Definition(module, name, node.lineno, _length(node), frozenset(_words(node) - {name}), root)


def _length(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _plain_name(node: ast.Assign | ast.AnnAssign) -> str:
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    return target.id if isinstance(target, ast.Name) else ""


def _words(node: ast.AST) -> set[str]:
    found: set[str] = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            found.add(part.id)
        elif isinstance(part, ast.Attribute):
            found.add(part.attr)
        elif isinstance(part, ast.alias):
            found.update(part.name.split("."))
        elif isinstance(part, ast.keyword) and part.arg:
            found.add(part.arg)
        elif isinstance(part, ast.Constant) and isinstance(part.value, str) and len(part.value) < 200:
            found.update(WORD.findall(part.value))
    return found


def _imports(tree: ast.Module, package: str) -> Iterator[str]:
    globs = any(isinstance(node, ast.Attribute) and node.attr in {"glob", "iterdir"} for node in ast.walk(tree))
    for node in ast.walk(tree):
        if globs and isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            yield f"{package}.{node.value}.*"
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.rsplit(".", node.level - 1)[0] if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 80:
            if node.value.startswith("scaffold."):
                yield node.value.rstrip(".")  # `import_module(f"scaffold.check.rules.{name}")` finds a whole folder
            elif node.value.endswith(".py"):
                yield node.value  # a program that runs in another process is named by its file


def _reach(modules: dict[str, Module]) -> tuple[set[str], set[str]]:
    """The modules that are imported from the roots, and every word that live code mentions."""
    words = _template_words()
    # What runs in another process or is rendered is named by file and not by import.
    named = {name for name, module in modules.items() if _runs_elsewhere(module)}
    live: set[str] = set()
    todo = [name for name in modules if name in named or name in ENTRIES or name.startswith("scaffold.cli.commands")]
    while todo:
        name = todo.pop()
        if name.endswith(".*"):
            todo.extend(other for other in modules if other.startswith(name[:-1]))
        elif name.endswith(".py"):
            todo.extend(other for other, module in modules.items() if module.path.name == name)
        if name in live or name not in modules:
            continue
        live.add(name)
        module = modules[name]
        todo.extend(module.imports)
        todo.append(name.rpartition(".")[0])
        folders = {one for one in module.imports if one in modules and modules[one].path.name == "__init__.py"}
        if "import_module" in module.path.read_text(encoding="utf-8"):
            todo.extend(other for one in folders for other in modules if other.startswith(f"{one}."))
        if module.walks:
            todo.extend(other for other in modules if _walked(other, name))
    for name in live:
        words |= modules[name].words
    parts = [part for name in live for part in modules[name].definitions]
    larger = True
    while larger:
        rest = []
        larger = False
        for part in parts:
            if part.root or part.name in words:
                words |= part.words
                larger = True
            else:
                rest.append(part)
        parts = rest
    return live, words


def _walked(other: str, walker: str) -> bool:
    """Whether a module may be what another finds by walking: it lies below the walker or a folder beside it."""
    package = walker.rpartition(".")[0]
    return other.startswith((f"{walker}.", f"{package}."))


def _runs_elsewhere(module: Module) -> bool:
    parts = module.path.parts
    return "kit" in parts or "engine_side" in parts or "trainer_side" in parts or "runtime" in parts


def _template_words() -> set[str]:
    """What templates and packaged data mention: attributes of a spec, names of the runtime, layouts, profiles."""
    files = [*(ROOT / "templates").rglob("*.jinja"), *(ROOT / "scaffold").rglob("*.toml"), ROOT / "pyproject.toml"]
    return {word for path in files for word in WORD.findall(path.read_text(encoding="utf-8"))}


def _print_facts(modules: dict[str, Module], live: set[str]) -> None:
    """Facts that a question answers and that no other module names: people may read them, the tool does not."""
    keys: dict[str, str] = {}
    for name in sorted(live):
        module = modules[name]
        if ".questions." in name:
            for node in ast.walk(ast.parse(module.path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    if re.fullmatch(r"detail\.[a-z_.]+", node.value):
                        keys.setdefault(node.value, name)
    texts = {name: modules[name].path.read_text(encoding="utf-8") for name in live if ".questions." not in name}
    unread = {key: name for key, name in keys.items() if not any(f'"{key}"' in text for text in texts.values())}
    print(f"facts that no room but `inspect`'s questions names: {len(unread)} of {len(keys)}")
    for key, name in sorted(unread.items(), key=lambda item: item[1]):
        print(f"  {key}  ({name})")


def _print_sizes(modules: dict[str, Module]) -> None:
    rooms: dict[str, list[Module]] = defaultdict(list)
    for module in modules.values():
        rooms[_room(module.path)].append(module)
    for room, found in sorted(rooms.items()):
        print(f"{room:24} {len(found):4} files {sum(module.lines for module in found):7} lines")
    print(f"{'all':24} {len(modules):4} files {sum(module.lines for module in modules.values()):7} lines")


def _room(path: Path) -> str:
    parts = path.relative_to(ROOT).parts
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]


if __name__ == "__main__":
    main()
