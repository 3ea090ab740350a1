"""Weights are saved under the training module's names, and loading asks for the checkpoint's.

``from_pretrained`` takes every name through the table from the checkpoint's names. What ``save_pretrained`` writes goes
the same way when training is resumed or the model is published: a name of the training module is in no row, and the load
stops, or the row that takes everything makes another name of it.

    save_file(self.state_dict(), …)                      # "layers.0.…", and loading wants "model.layers.0.…"

Instead: give the names back to the checkpoint's before they are written.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.always_built import always_runs
from scaffold.check.model.calls import attribute_name, resolve
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.key_tables import KeyTable, back_tables, key_tables, loading_functions, renaming_functions
from scaffold.check.model.module_parameters import built_parameters
from scaffold.check.model.module_paths import INDEX
from scaffold.check.model.name_functions import NotPlainError, RefusedNameError, answer
from scaffold.check.model.package import Package
from scaffold.check.model.reach import reachable
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC153"
NAME = "saved-under-other-names"
SEVERITY = "error"
CHECKLIST = ("M6", "pitfall 21")
APPLIES = Applies(non_diffusers=True)
HELP = "give the names back to the checkpoint's before they are written"
_WRITERS = ("safetensors.torch.save_file", "torch.save")
_READERS = ("safe_open", "load_file", "load")


def check(package: Package) -> Hits:
    """Try on a parameter's name what loading makes of it, where saving renames nothing."""
    module = package.training_module
    save = module.method("save_pretrained") if module is not None else None
    if module is None or save is None or save.file not in package.files or save.is_abstract:
        return
    tables = [table for table in key_tables(package) if not table.ignores]
    renaming = renaming_functions(tables)
    every = [*tables, *back_tables(package)]
    functions = reachable(save, module)
    written = [call for f in functions for call in f.calls if f.file.qualified(call.func) in _WRITERS]
    state = any(attribute_name(call) in ("state_dict", "named_parameters") for f in functions for call in f.calls)
    loader = _loader(package, renaming)
    if len(written) != 1 or not written[0].args or not state or loader is None or _names(functions, loader, every):
        return
    # Only what loading does to a name; giving it back is another function.
    if any(f.qualname in renaming and f != loader for f in functions):
        return
    for name, _, _ in built_parameters(module):
        given = name.replace(INDEX, "0")
        try:
            made = answer(loader, given)
        except RefusedNameError:
            made = None
        except NotPlainError:
            return
        if made != given:
            becomes = f"makes {made!r} of" if isinstance(made, str) else "does not know"
            function = next(f for f in functions if written[0] in f.calls)
            text = (
                f"weights are saved under names such as {given!r}, which {loader.name}() {becomes} when they are loaded"
            )
            yield Hit(function.file, written[0].args[0], text)
            return


def _loader(package: Package, renaming: frozenset[str]) -> FunctionModel | None:
    """Return the function that every name goes through where weights are read, at the only place that reads them."""
    functions = loading_functions(package)
    readers = [f for f in functions for call in f.calls if attribute_name(call) in _READERS and _of_weights(f, call)]
    if len(readers) != 1:
        return None
    found: set[FunctionModel] = set()
    for call in readers[0].calls:
        called = resolve(readers[0].file, call, readers[0].cls)
        if isinstance(called, FunctionModel) and called.qualname in renaming and len(called.required) == 1:
            if len(call.args) != 1 or call.keywords or not always_runs(readers[0], call):
                return None
            found.add(called)
    return found.pop() if len(found) == 1 else None


def _of_weights(function: FunctionModel, call: ast.Call) -> bool:
    return (function.file.qualified(call.func) or "").startswith(("safetensors.", "torch."))


def _names(functions: list[FunctionModel], loader: FunctionModel, tables: list[KeyTable]) -> bool:
    """Whether functions speak of a table, or of a prefix of the checkpoint's, themselves, or work on beginnings."""
    prefixes = {row.source for table in tables for row in table.rows if row.source and row.source != row.target}
    names = {table.name for table in tables}
    for function in functions:
        if function == loader:
            continue
        if any(attribute_name(call) in ("startswith", "removeprefix") for call in function.calls):
            return True
        if any(isinstance(node, ast.Constant) and node.value in prefixes for node in function.nodes(ast.Constant)):
            return True
        if function.cls is not None and any(
            isinstance(node, ast.Name) and node.id in names for node in function.nodes(ast.Name)
        ):
            return True
    return False


_LOAD = "    @classmethod\n    def from_pretrained(cls, model_path"
_SAVE = """    def save_pretrained(self, save_directory: str, **kwargs) -> None:
        self._save_config(save_directory)
        {}

"""
_FILE = 'os.path.join(save_directory, "ema.safetensors")'
_IMPORT = (
    "from safetensors import safe_open\n",
    "from safetensors import safe_open\nfrom safetensors.torch import save_file\n",
)


_BASE = '{n.replace(".base_layer.", "."): t for n, t in self.state_dict().items() if ".lora_" not in n}'


def _saved(title: str, *lines: str, also: tuple[str, ...] = ()) -> Example:
    return Example(title, {"model": [(_LOAD, _SAVE.format("\n        ".join(lines)) + _LOAD), _IMPORT]}, also=also)


FAILING = (
    _saved("as they are", f"save_file(«self.state_dict()», {_FILE})", also=("OSC410",)),
    _saved(
        "without those of adapters",
        f"state = {_BASE}",
        f"save_file(«state», {_FILE})",
    ),
    _saved(
        "renamed as for loading",
        f"state = {{to_training_key(name): tensor for name, tensor in {_BASE}.items()}}",
        f"save_file(«state», {_FILE})",
    ),
)
_TABLE = """
BACK = {"time_embedder.": "time_embedder.", "": "language_model.model."}


def restored(name: str) -> str:
    best = max((prefix for prefix in BACK if name.startswith(prefix)), key=len)
    return BACK[best] + name[len(best) :]


@dataclass
"""
PASSING = (
    Example(
        "given back through a table of its own",
        {
            "model": [
                (
                    _LOAD,
                    _SAVE.format(
                        f"state = {{restored(n): t for n, t in {_BASE}.items()}}\n        save_file(state, {_FILE})"
                    )
                    + _LOAD,
                ),
                _IMPORT,
                ("\n@dataclass\n", _TABLE),
            ]
        },
        also=("OSC402",),
    ),
    _saved(
        "given back",
        f"state = {{to_checkpoint_key(name): tensor for name, tensor in {_BASE}.items()}}",
        f"save_file(state, {_FILE})",
    ),
    _saved(
        "given back by hand",
        f'state = {{"language_model.model." + name: tensor for name, tensor in {_BASE}.items()}}',
        f"save_file(state, {_FILE})",
    ),
    Example("left to the base class"),
    Example("of diffusers", base="diffusers"),
)
