"""Loading opens another file than the checkpoint has.

``scaffold.toml`` records the files of the released checkpoint. Where none of them is named in the code that loads, the
load stops at the first rank, or, if a file of that name happens to be there, takes other weights than the rollout.

    state = load_file(os.path.join(model_path, "model.safetensors"))     # the checkpoint has ema.safetensors

Instead: name the recorded file.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.example import Example
from scaffold.check.model.key_tables import loading_functions
from scaffold.check.model.package import Package
from scaffold.check.model.pyfile import PythonFile
from scaffold.check.model.recorded_facts import recorded_list
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC131"
NAME = "other-checkpoint-file"
SEVERITY = "error"
CHECKLIST = ("M6",)
APPLIES = Applies(non_diffusers=True)
HELP = "open the file that the checkpoint has"


_ENDINGS = (".safetensors", ".bin", ".pt", ".pth", ".index.json")


def check(package: Package) -> Hits:
    """Compare the names of weight files in the code of ``from_pretrained`` with the recorded ones."""
    files = recorded_list(package, "checkpoint", "files")
    module = package.training_module
    method = module.method("from_pretrained") if module is not None else None
    if not files or method is None or method.file not in package.files:
        return
    known = {name.rpartition("/")[2] for name in files}
    named: dict[str, ast.Constant] = {}
    for function in loading_functions(package):
        if function.file is not method.file or function.name == "save_pretrained":
            continue
        for node in _read(function.file, function.node):
            if isinstance(node.value, str) and node.value.endswith(_ENDINGS) and " " not in node.value:
                named.setdefault(node.value, node)
    found = {name.rpartition("/")[2]: node for name, node in named.items() if "*" not in name}
    wrong = [(name, node) for name, node in found.items() if name not in known]
    if wrong and not known & _opened(wrong, found):
        yield Hit(method.file, wrong[0][1], f"the checkpoint has {', '.join(sorted(known)[:3])}, no {wrong[0][0]}")


def _opened(wrong: list[tuple[str, ast.Constant]], found: dict[str, ast.Constant]) -> set[str]:
    """Return the names that stand first: what is tried before the others is the released checkpoint."""
    first = min(found.items(), key=lambda item: item[1].lineno)
    return {first[0]}


def _read(file: PythonFile, node: ast.AST) -> Iterator[ast.Constant]:
    """Yield the strings in a function, and in the constants of the module that it reads."""
    yield from file.index.nodes(ast.Constant, node)
    for name in file.index.nodes(ast.Name, node):
        for binding in file.names.get(name.id, ()):
            if binding.kind == "variable" and binding.value is not None:
                yield from file.index.nodes(ast.Constant, binding.value)


FAILING = (
    Example(
        "another name",
        model=('"ema.safetensors"', '«"model.safetensors"»'),
        spec='[upstream]\nversion = "0.27.0rc1"\n\n[checkpoint]\nfiles = [\n    "ema.safetensors",\n]\n',
    ),
)
PASSING = (
    Example(
        "the recorded file",
        spec='[upstream]\nversion = "0.27.0rc1"\n\n[checkpoint]\nfiles = [\n    "ema.safetensors",\n]\n',
    ),
    Example("nothing recorded", model=('model_path, "ema', 'model_path, "model')),
)
