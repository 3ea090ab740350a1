"""With a LoRA adapter attached, weights are saved or sent under names that nothing knows.

An adapter renames the layer below it to ``x.base_layer`` and puts ``x.lora_A`` and ``x.lora_B`` beside it. Saved as they
are, the folder does not load again, or only into a model with the same adapter; sent as they are, the engine does not find
the layer, stops, or goes on with the weights that it had.

    {to_checkpoint_key(name): tensor for name, tensor in self.state_dict().items()}

Instead: leave what has ``.lora_`` in its name out, and take ``.base_layer`` out of the other names.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.example_keys import recorded_spec
from scaffold.check.model.adapter_names import parameters, saved_names, sent, with_adapters, wrapped
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.name_functions import RefusedNameError
from scaffold.check.model.package import Package
from scaffold.check.model.reach import reachable
from scaffold.check.model.recorded_facts import recorded
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC410"
NAME = "adapter-names"
SEVERITY = "error"
CHECKLIST = ("M6", "pitfall 18", "pitfall 20", "pitfall 36")
APPLIES = Applies(non_diffusers=True)
HELP = "leave names with '.lora_' out, and take '.base_layer' out of the others"
_SENT = "transformer."
_MERGING = ("unload", "merge_and_unload", "merge_adapter", "get_base_model", "unmerge_adapter", "base_layer")


def check(package: Package) -> Hits:
    """Try names with an adapter on what saves weights, and on what sends them."""
    pairs = parameters(package)
    if pairs:
        # One weight stands for all: names are made in one place.
        yield from _saved(package, [pairs[0][1]])
        # An engine that wraps its own layers may well know the names that adapters give.
        if recorded(package, "lora", "sync") == "fold":
            yield from _sent(package, pairs)


def _saved(package: Package, names: list[str]) -> Hits:
    module = package.training_module
    save = module.method("save_pretrained") if module is not None else None
    if module is None or save is None or save.file not in package.files or save.cls is None:
        return
    functions = reachable(save, module)
    attributes = {node.attr for f in functions for node in f.file.index.nodes(ast.Attribute, f.node)}
    if attributes.intersection(_MERGING):
        return
    try:
        plain = saved_names(save, names)
    except RefusedNameError:
        return
    if not plain or len(plain) != len(names):
        return
    place = _state(save)
    try:
        adapted = saved_names(save, with_adapters(names))
    except RefusedNameError:
        yield Hit(save.file, place, f"{save.name}() raises while an adapter is attached")
        return
    if adapted is None or adapted == plain:
        return
    strange, lost = sorted(adapted - plain), sorted(plain - adapted)
    adapters = [name for name in strange if "lora_" in name]
    if adapters:
        yield Hit(save.file, place, f"an adapter's matrices are saved among the weights, as {adapters[0]!r}")
    elif strange and _speaks_of(functions, "base_layer"):
        yield Hit(save.file, place, f"with an adapter on it, {lost[0] if lost else ''} is saved as {strange[0]!r}")
    elif lost and not strange:
        yield Hit(save.file, place, f"{lost[0]} is not saved while an adapter is attached")


def _state(save: FunctionModel) -> ast.AST:
    """Return where the weights are asked for."""
    calls = (call for call in save.calls if isinstance(call.func, ast.Attribute))
    names = ("state_dict", "named_parameters")
    return next((call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr in names), save.node)


def _speaks_of(functions: list[FunctionModel], word: str) -> bool:
    texts = (node.value for f in functions for node in f.file.index.nodes(ast.Constant, f.node))
    return any(word in text for text in texts if isinstance(text, str))


def _sent(package: Package, pairs: list[tuple[str, str]]) -> Hits:
    for adapter in package.rollout_adapters:
        method = adapter.method("load_weights")
        functions = reachable(method, adapter) if method is not None else []
        for function in functions:
            if function.file not in package.files or len(function.positional) != 1 or not function.nodes(ast.Yield):
                continue
            inner = reachable(function, adapter)
            others = [other for other in functions if other not in inner and other is not method]
            for source, target in pairs:
                base = wrapped(target)
                plain = sent(function, _SENT + target) if source != target and base is not None else None
                if plain is None or base is None or not plain.endswith(source):
                    continue
                made = sent(function, _SENT + base)
                if made is not None and made != plain and not _speaks_of(others, "base_layer"):
                    what = f"becomes {made!r}" if made else "is refused"
                    yield Hit(function.file, function.node, f"{_SENT + base!r}, sent with LoRA, {what}, not {plain!r}")
                break


_BEFORE = "    @classmethod\n    def from_pretrained(cls, model_path: str, torch_dtype"
_SAVE = """    def save_pretrained(self, save_directory, **kwargs):
        self._save_config(save_directory)
        state = {{{name}: tensor.contiguous() for name, tensor in {items}{test}}}
        save_file(state, os.path.join(save_directory, "ema.safetensors"))

"""
_RIGHT = {
    "name": 'to_checkpoint_key(name.replace(".base_layer.", "."))',
    "items": "self.state_dict().items()",
    "test": ' if ".lora_" not in name',
}
_STATE = "«self.state_dict()».items()"
_IMPORT = (
    "from safetensors import safe_open\n",
    "from safetensors import safe_open\nfrom safetensors.torch import save_file\n",
)
_FOLD = recorded_spec() + '[lora]\nsync = "fold"\n'
_NAMED = 'to_checkpoint_key(name.removeprefix("transformer."))'
_GENERATOR = ("def _checkpoint_names(", "def «_checkpoint_names»(")


def _saving(title: str, **parts: str) -> Example:
    method = _SAVE.format(**{**_RIGHT, **parts})
    return Example(title, {"model": [_IMPORT, (_BEFORE, method + _BEFORE)], "spec": recorded_spec()})


def _sending(title: str, name: str, found: bool = True) -> Example:
    before = "                name = " + _NAMED
    changes = [(before, f"                name = {name}"), *([_GENERATOR] if found else [])]
    # Of the hook another rule speaks: it folds nothing.
    return Example(title, {"rollout": changes, "spec": _FOLD}, also=("OSC318",))


FAILING = (
    _saving("adapters among the weights", items=_STATE, test=""),
    _saving("one matrix of two", items=_STATE, test=' if ".lora_A" not in name'),
    _saving("a beginning that no name has", items=_STATE, test=' if not name.startswith("lora_")'),
    _saving("the condition turned round", items=_STATE, test=' if ".lora_" in name or "base_layer" not in name'),
    _saving("a dot too many", items=_STATE, name='to_checkpoint_key(name.replace("base_layer", ""))'),
    _saving(
        "the layers below are left out", items=_STATE, test=' if ".lora_" not in name and "base_layer" not in name'
    ),
    _sending("sent as it is", _NAMED),
    _sending(
        "a suffix that is cut off",
        'to_checkpoint_key(name.removeprefix("transformer.").removesuffix(".base_layer.weight"))',
    ),
)
PASSING = (
    _saving("the layers' own names"),
    _saving("parameters, one by one", items="self.named_parameters()"),
    _saving(
        "in another way",
        name='to_checkpoint_key("".join(name.split(".base_layer")))',
        test=' if "lora" not in name.split(".")[-3:][0]',
    ),
    _sending(
        "the layer's own name",
        'to_checkpoint_key(name.removeprefix("transformer.").replace(".base_layer", ""))',
        found=False,
    ),
    Example("the engine's own adapters know the names"),
    Example("of diffusers", base="diffusers"),
)
