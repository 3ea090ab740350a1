"""A field of the configuration is read under another field's key.

The module is built with another size than the checkpoint has, or with one boundary token in the place of the other.
Sizes that differ stop the load; those that happen to be equal, and token ids, do not.

    end_of_image_id=raw.get("start_of_image_id", 102)

Instead: read every field under its own name, and every token by its own text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from scaffold.check.example import Example
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.recorded_facts import recorded_tables
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC132"
NAME = "crossed-config-field"
SEVERITY = "error"
CHECKLIST = ("M1", "M9", "pitfall 36")
APPLIES = Applies(non_diffusers=True)
HELP = "read each field under its own key"
_KEY = re.compile(r"[A-Za-z_][\w.]*")
_FILES = (".json", ".safetensors", ".toml", ".yaml")
_READ = "        return cls(**{field.name: raw[field.name] for field in fields(cls)})\n"
_ALL = (
    "        return cls(\n            hidden_size=raw['hidden_size'], num_hidden_layers=raw['num_hidden_layers'],\n"
    "            num_attention_heads=raw['num_attention_heads'], vocab_size=raw['vocab_size'],\n"
    "            latent_dim=raw['latent_dim'], max_latent_size=raw['max_latent_size'],\n"
    "            start_of_image_id=raw['start_of_image_id'], end_of_image_id=raw['end_of_image_id'],\n        )\n"
)


def _recorded(package: Package) -> Iterator[tuple[str, str, object]]:
    """Yield field, key or dotted path, and default of what ``scaffold.toml`` records of the released configuration."""
    for key in ("text_config", "root_config"):
        for table in recorded_tables(package, "checkpoint", key):
            field, path = table.get("field"), table.get("path", table.get("key"))
            if isinstance(field, str) and isinstance(path, str):
                yield field, path, table.get("default")


def _other_keys(package: Package, read: FunctionModel, items: dict[str, ast.keyword], others: Iterable[str]) -> Hits:
    """Compare keys, defaults and tokens with those that are recorded."""
    for field, path, default in _recorded(package):
        item = items.get(field)
        if item is None or not isinstance(item.value, (ast.Call, ast.Subscript)):
            continue
        words = {n.value: n for n in read.file.index.nodes(ast.Constant, item.value) if isinstance(n.value, str)}
        if field not in words and any(word in others and word != field for word in words):
            continue  # under the key of another field: said once, whatever is recorded
        keys = {word: node for word, node in words.items() if _KEY.fullmatch(word) and not word.endswith(_FILES)}
        own = {path, path.rpartition(".")[2], field}
        if keys and not own & keys.keys() and not own & {word.rpartition(".")[2] for word in keys}:
            word, node = next(iter(keys.items()))
            yield Hit(read.file, node, f"{field} is read under {word!r}, the release has it under {path!r}")
        elif isinstance(item.value, ast.Call) and item.value.args and path in keys:
            given = item.value.args[-1]
            value = read.file.value(given)
            if isinstance(value, (int, float)) and isinstance(default, (int, float)) and value != default:
                yield Hit(read.file, given, f"{field} is {value} where the entry is missing; upstream takes {default}")
    for token in recorded_tables(package, "tokens"):
        item = items.get(str(token.get("config_key")))
        for node in read.file.index.nodes(ast.Constant, item.value) if item is not None else ():
            text = node.value
            if isinstance(text, str) and text.startswith("<") and text.endswith(">") and text != token.get("text"):
                yield Hit(
                    read.file, node, f"{item.arg if item else ''} is the id of {token.get('text')}, not of {text}"
                )


def check(package: Package) -> Hits:
    """Look at the strings in what ``from_model_path`` gives to each field."""
    config = package.config_class
    read = config.method("from_model_path") if config is not None else None
    if config is None or read is None or config.file not in package.files:
        return
    for call in read.calls:
        if not (isinstance(call.func, ast.Name) and call.func.id in ("cls", config.name)):
            continue
        items = {item.arg: item for item in call.keywords if item.arg in config.fields}
        named = {name: item for name, item in items.items() if name is not None}
        told = list(_other_keys(package, read, named, config.fields))
        yield from told
        marks: dict[str, str] = {}
        for item in call.keywords:
            if item.arg is None or item.arg not in config.fields:
                continue
            # A property or a sum may well be made of other fields: only single look-ups are judged.
            if not isinstance(item.value, (ast.Call, ast.Subscript)):
                continue
            words = {n.value: n for n in read.file.index.nodes(ast.Constant, item.value) if isinstance(n.value, str)}
            # The size of another part of the model may well have the key of one of the decoder's.
            keys = {word: node for word, node in words.items() if "." not in word}
            others = [key for key in keys if key in config.fields and key != item.arg]
            if others and item.arg not in keys:
                yield Hit(read.file, keys[others[0]], f"{item.arg} is read under the key of {others[0]}")
                continue
            for word, node in words.items():
                special = word.startswith("<") and word.endswith(">")
                if special and marks.setdefault(word, item.arg) != item.arg and node not in [hit.at for hit in told]:
                    yield Hit(read.file, node, f"{item.arg} is the id of {word}, and so is {marks[word]}")


_SPEC = """[checkpoint]
text_config = [{ field = "vocab_size", key = "vocab_size" }]
root_config = [{ field = "latent_dim", path = "vae_config.z_channels", default = 16 }]

[tokens.start_of_image]
text = "<image>"
config_key = "start_of_image_id"
"""
FAILING: tuple[Example, ...] = (
    Example(
        "another key than the release has",
        {
            "model": [(_READ, _ALL.replace("raw['latent_dim']", "look_up(raw, «'vae_config.downsample'», 16)"))],
            "spec": _SPEC,
        },
    ),
    Example(
        "another default than upstream's",
        {
            "model": [(_READ, _ALL.replace("raw['latent_dim']", "look_up(raw, 'vae_config.z_channels', «4»)"))],
            "spec": _SPEC,
        },
    ),
    Example(
        "another token than the model's",
        {
            "model": [(_READ, _ALL.replace("raw['start_of_image_id']", "token_id(raw, «'<im_start>'»)"))],
            "spec": _SPEC,
        },
    ),
    Example("another size", {"model": [(_READ, _ALL.replace("raw['vocab_size']", "raw[«'hidden_size'»]"))]}),
    Example(
        "the same token twice",
        {
            "model": [
                (
                    _READ,
                    _ALL.replace("raw['start_of_image_id']", "token_id(raw, '<start>')").replace(
                        "raw['end_of_image_id']", "token_id(raw, «'<start>'»)"
                    ),
                )
            ]
        },
    ),
)
PASSING = (
    Example(
        "the keys that are recorded, in another way",
        {
            "model": [
                (
                    _READ,
                    _ALL.replace("raw['latent_dim']", "raw['vae_config'].get('z_channels', 16)").replace(
                        "raw['start_of_image_id']", "token_id(raw, '<image>')"
                    ),
                )
            ],
            "spec": _SPEC,
        },
        also=("OSC113",),
    ),
    Example("field by field", {"model": [(_READ, _ALL)]}),
    Example("every field of the class"),
    Example("under another model's name", {"model": [(_READ, _ALL.replace("raw['vocab_size']", "raw['n_vocab']"))]}),
)
