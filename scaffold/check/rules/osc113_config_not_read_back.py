"""``from_model_path`` does not find what ``save_pretrained`` wrote.

The configuration is written flat, field by field, and read from the sections of the released checkpoint's file. Read
back from a saved model every section is missing, every size takes its default, and the module is built for another
model than the weights beside it.

    json.dump(asdict(self), file)                    # {"hidden_size": 64, …}
    cls(hidden_size=raw.get("llm_config", {}).get("hidden_size", 3584))

Instead: mark what ``save_pretrained`` writes and read such a file field by field.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.example import Example
from scaffold.check.model.calls import attribute_name
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.config_look_ups import (
    asked_key,
    builds_config,
    is_section_of,
    looked_up_elsewhere,
    section_of,
    sets_all_fields,
)
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.left_out_fields import left_out_fields
from scaffold.check.model.package import Package
from scaffold.check.model.reach import reachable
from scaffold.check.model.saved_config import SavedConfig, saved_config
from scaffold.check.model.saved_values import of_fields, other_values
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC113"
NAME = "config-not-read-back"
SEVERITY = "error"
CHECKLIST = ("M1", "pitfall 36")
APPLIES = Applies(non_diffusers=True)
HELP = "read what save_pretrained() wrote field by field, and the released file otherwise"


def check(package: Package) -> Hits:
    """Compare how the fields are written with how they are read."""
    config = package.config_class
    save = config.method("save_pretrained") if config is not None else None
    read = config.method("from_model_path") if config is not None else None
    if config is None or save is None or read is None or config.file not in package.files:
        return
    saved = saved_config(config, save)
    yield from _names(save, read)
    yield from _taken_out(config, save)
    yield from (Hit(file, node, text) for file, node, text in other_values(config, save, read))
    if saved is None or not saved.complete:
        return
    yield from _sections(save, read, saved)
    yield from _lacking(config, save, read, saved)
    yield from _unmarked(read, saved)
    if not set(config.fields) <= saved.keys.keys():
        return
    built = [call for call in read.calls if builds_config(read, call, config.name)]
    # A branch that hands on everything it read, or fills the fields in a loop, reads the flat file.
    if not built or any(item.arg is None for call in built for item in call.keywords) or sets_all_fields(read):
        return
    for call in built:
        nested = [(item, section) for item in call.keywords if (section := section_of(read, item.value)) is not None]
        if nested:
            item, section = nested[0]
            fields = f"{len(nested)} fields are" if len(nested) > 1 else f"{item.arg!r} is"
            text = f"{fields} read from the section {section!r}, which save_pretrained() does not write"
            yield Hit(read.file, item.value, text)
            return
    for call in built:
        others = [item for item in call.keywords if looked_up_elsewhere(read, save, item.value)]
        if others:
            fields = f"{len(others)} fields are" if len(others) > 1 else f"{others[0].arg!r} is"
            yield Hit(read.file, others[0].value, f"{fields} read from elsewhere than where save_pretrained() writes")
            return


def _names(save: FunctionModel, read: FunctionModel) -> Hits:
    """Compare the names of the files that are written and read."""
    written = dict(_json_names(save))
    opened = {name for function in reachable(read) for name, _ in _json_names(function)}
    if len(written) == 1 and opened and not written.keys() & opened:
        name, node = next(iter(written.items()))
        # What looks like a configuration is meant, not a file of the tokenizer or of another part.
        likely = min(opened, key=lambda other: (other != "config.json", "config" not in other, len(other), other))
        others = " and others" if len(opened) > 1 and likely != "config.json" else ""
        yield Hit(save.file, node, f"{name} is written, from_model_path() opens {likely}{others}")


def _json_names(function: FunctionModel) -> Iterator[tuple[str, ast.Constant]]:
    for node in function.file.index.nodes(ast.Constant, function.node):
        if isinstance(node.value, str) and node.value.endswith(".json"):
            yield node.value, node


def _taken_out(config: ClassModel, save: FunctionModel) -> Hits:
    """Look for fields that are taken out of what is written."""
    for call in save.calls:
        if attribute_name(call) == "pop" and call.args and save.file.value(call.args[0]) in config.fields:
            yield Hit(save.file, call.args[0], f"{save.file.value(call.args[0])} is taken out of what is written")
    for node in save.nodes(ast.Subscript):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Del):
            if save.file.value(node.slice) in config.fields:
                yield Hit(save.file, node.slice, f"{save.file.value(node.slice)} is taken out of what is written")
    for test, names in left_out_fields(config, save):
        more = " and others" if len(names) > 3 else ""
        yield Hit(save.file, test, f"{', '.join(names[:3])}{more} left out of what is written")


def _sections(save: FunctionModel, read: FunctionModel, saved: SavedConfig) -> Hits:
    """Fields that are written one level deeper, under a key that reading does not know."""
    known = {node.value for f in reachable(read) for node in f.nodes(ast.Constant) if isinstance(node, ast.Constant)}
    for key, node in saved.sections.items():
        if key not in known:
            yield Hit(save.file, node, f"the fields are written under {key!r}, where from_model_path() does not look")


def _lacking(config: ClassModel, save: FunctionModel, read: FunctionModel, saved: SavedConfig) -> Hits:
    """Fields that are not written, where reading goes through all of them."""
    every = [node for node in read.nodes(ast.DictComp) if isinstance(node, ast.DictComp) and _all_fields(node)]
    lacking = [name for name in config.fields if name not in saved.keys]
    if every and lacking and not saved.sections:
        text = f"{', '.join(lacking[:3])} and others" if len(lacking) > 3 else ", ".join(lacking)
        yield Hit(save.file, saved.node, f"{text} are not written, and from_model_path() reads every field")


def _all_fields(node: ast.DictComp) -> bool:
    looked = [part.slice for part in ast.walk(node.value) if isinstance(part, ast.Subscript)]
    return bool(looked) and of_fields(node)


def _unmarked(read: FunctionModel, saved: SavedConfig) -> Hits:
    """A branch that reads the flat file, under a test for a key that is not written."""
    for node in read.nodes(ast.If):
        assert isinstance(node, ast.If)
        flat = any(
            isinstance(inner, ast.Call)
            and any(item.arg is None and not is_section_of(read, item.value) for item in inner.keywords)
            for statement in node.body
            for inner in ast.walk(statement)
        )
        key = asked_key(read, node.test)
        if flat and key is not None and key not in saved.keys:
            text = f"from_model_path() looks for {key!r} to know its own files, save_pretrained() does not write it"
            yield Hit(read.file, node.test, text)


_READ = "        return cls(**{field.name: raw[field.name] for field in fields(cls)})\n"
FAILING: tuple[Example, ...] = (
    Example(
        "every value as text",
        {
            "model": [
                (
                    "json.dump(asdict(self), file",
                    "json.dump({name: «str(value)» for name, value in asdict(self).items()}, file",
                )
            ]
        },
    ),
    Example(
        "the defaults in the place of what was written",
        {"model": [("raw[field.name] for field", "«getattr(cls, field.name)» for field")]},
    ),
    Example(
        "another file",
        {
            "model": [
                (
                    'os.path.join(save_directory, "config.json")',
                    'os.path.join(save_directory, «"training_config.json"»)',
                )
            ]
        },
    ),
    Example(
        "a field taken out",
        {
            "model": [
                (
                    "            json.dump(asdict(self), file",
                    '            saved = asdict(self)\n            saved.pop(«"vocab_size"»)\n            json.dump(saved, file',
                )
            ]
        },
    ),
    Example(
        "from a section, through a name",
        {
            "model": [
                (
                    _READ,
                    '        text = raw.get("text_config", {})\n'
                    '        return cls(hidden_size=«text.get("hidden_size", 64)», latent_dim=raw["latent_dim"])\n',
                )
            ]
        },
        also=("OSC114",),
    ),
    Example(
        "from a section, at once",
        {"model": [(_READ, '        return cls(hidden_size=«int(raw["text_config"]["hidden_size"])»)\n')]},
        also=("OSC114",),
    ),
)
_WRITE = "json.dump(asdict(self), file, indent=2, sort_keys=True)"
_KNOWN = '        if raw.get("saved") == 1:\n            return cls(**{field.name: raw[field.name] for field in fields(cls)})\n'
_OTHER = """\
        with open(os.path.join(model_path, "text.json")) as file:
            text = json.load(file)
        return cls(hidden_size=text["hidden_size"], latent_dim=raw["latent_dim"])
"""
_SAVED = "{{name: value for name, value in asdict(self).items() if {}}}"
_BY_END, _BY_LIST = '«not name.endswith("_id")»', '«name not in ("vocab_size",)»'
_NONE, _APART = 'not name.startswith("_")', 'name != "vocab_size"'
_IN_A_LOOP = """\
            saved = asdict(self)
            for name in list(saved):
                if {}:
                    del saved[name]
            json.dump(saved, file)"""


def _filtered(title: str, text: str) -> Example:
    return Example(title, {"model": [(_WRITE, text)]})


FAILING += (
    _filtered("by the end of the name", f"json.dump({_SAVED.format(_BY_END)}, file)"),
    _filtered(
        "by the end of the field's name",
        'json.dump({f.name: getattr(self, f.name) for f in fields(self) if «not f.name.endswith("_id")»}, file)',
    ),
    _filtered("by a list", f"json.dump({_SAVED.format(_BY_LIST)}, file)"),
    Example(
        "in a loop",
        {"model": [("            " + _WRITE, _IN_A_LOOP.format('«name.startswith("max_")»'))]},
    ),
)
FAILING += (
    Example("one level deeper", {"model": [(_WRITE, 'json.dump({"model": «asdict(self)»}, file)')]}),
    Example(
        "only some fields are written",
        {"model": [(_WRITE, 'json.dump(«{"hidden_size": self.hidden_size}», file)')]},
    ),
    Example(
        "a mark that is not written",
        {"model": [(_READ, _KNOWN.replace('raw.get("saved") == 1', '«raw.get("saved") == 1»') + _OTHER)]},
        also=("OSC114",),
    ),
)
PASSING = (
    Example(
        "a filter that leaves no field out",
        {"model": [(_WRITE, f"json.dump({_SAVED.format(_NONE)}, file)")]},
    ),
    Example(
        "left out here and written apart",
        {"model": [(_WRITE, f'json.dump({{"vocab_size": self.vocab_size, **{_SAVED.format(_APART)}}}, file)')]},
    ),
    Example(
        "a mark that is written",
        {"model": [(_WRITE, 'json.dump({"saved": 1, **asdict(self)}, file)'), (_READ, _KNOWN + _OTHER)]},
        also=("OSC114",),
    ),
    Example(
        "a branch for the released file",
        {"model": [(_READ, '        if "text" in raw:\n            return cls(**raw["text"])\n' + _READ)]},
    ),
    Example(
        "one level deeper on both sides",
        {
            "model": [
                (_WRITE, 'json.dump({"model": asdict(self)}, file)'),
                (_READ, _READ.replace("raw[field.name]", 'raw["model"][field.name]')),
            ]
        },
    ),
    Example("field by field"),
    Example(
        "all at the top level",
        {
            "model": [
                (
                    _READ,
                    "        return cls(\n            hidden_size=raw['hidden_size'],\n"
                    "            num_hidden_layers=raw['num_hidden_layers'],\n"
                    "            num_attention_heads=raw['num_attention_heads'], vocab_size=raw['vocab_size'],\n"
                    "            latent_dim=raw['latent_dim'], max_latent_size=raw['max_latent_size'],\n"
                    "            start_of_image_id=raw['start_of_image_id'],\n"
                    "            end_of_image_id=raw['end_of_image_id'],\n        )\n",
                )
            ]
        },
    ),
    Example(
        "two formats",
        {
            "model": [
                (
                    _READ,
                    '        if "text_config" in raw:\n'
                    '            return cls(hidden_size=raw["text_config"]["hidden_size"])\n' + _READ,
                )
            ]
        },
        also=("OSC114",),
    ),
)
