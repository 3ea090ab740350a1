"""A field of the configuration is read under another field's key.

The module is built with another size than the checkpoint has, or with one boundary token in the place of the other.
Sizes that differ stop the load; those that happen to be equal, and token ids, do not.

    end_of_image_id=raw.get("start_of_image_id", 102)

Instead: read every field under its own name, and every token by its own text.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC132"
NAME = "crossed-config-field"
SEVERITY = "error"
CHECKLIST = ("M1", "M9", "pitfall 36")
APPLIES = Applies(non_diffusers=True)
HELP = "read each field under its own key"
_READ = "        return cls(**{field.name: raw[field.name] for field in fields(cls)})\n"
_ALL = (
    "        return cls(\n            hidden_size=raw['hidden_size'], num_hidden_layers=raw['num_hidden_layers'],\n"
    "            num_attention_heads=raw['num_attention_heads'], vocab_size=raw['vocab_size'],\n"
    "            latent_dim=raw['latent_dim'], max_latent_size=raw['max_latent_size'],\n"
    "            start_of_image_id=raw['start_of_image_id'], end_of_image_id=raw['end_of_image_id'],\n        )\n"
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
                if special and marks.setdefault(word, item.arg) != item.arg:
                    yield Hit(read.file, node, f"{item.arg} is the id of {word}, and so is {marks[word]}")


FAILING = (
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
    Example("field by field", {"model": [(_READ, _ALL)]}),
    Example("every field of the class"),
    Example("under another model's name", {"model": [(_READ, _ALL.replace("raw['vocab_size']", "raw['n_vocab']"))]}),
)
