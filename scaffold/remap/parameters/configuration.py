"""The sizes with which a rendered training module is built for a checkpoint."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from typing import Any

from scaffold.checkpoint import CheckpointHeaders
from scaffold.checkpoint.quoting import quoted
from scaffold.errors import ScaffoldError
from scaffold.remap.key_map import KeyMap

MARK = "_training_config"


def configured(
    checkpoint: Mapping[str, Any], headers: CheckpointHeaders, config_class: str
) -> tuple[dict[str, Any], str | None]:
    """Return fields of the configuration as the rendered ``from_model_path`` reads them, and a note.

    Args:
        checkpoint: the ``[checkpoint]`` section of the spec.
        headers: the checkpoint, with the configurations beside it.
        config_class: name of the configuration's class; one that it saved itself is taken as it is.

    Returns:
        Only fields that the checkpoint gives; a manifest has no configuration, and the note says so.

    Raises:
        ScaffoldError: a file that the module reads is missing, or a size in it is no number.
    """
    files = checkpoint["config_files"]
    root = headers.configs.get(files["root"])
    if root is None and not headers.configs:
        return {}, f"{headers.source} has no configuration: sizes are the defaults of {config_class}"
    if root is None:
        raise ScaffoldError(f"{headers.source}: {files['root']} is missing", hint="the training module reads it")
    if root.get(MARK) == config_class:
        return {name: value for name, value in root.items() if name != MARK}, None
    text = headers.configs.get(files["text"])
    if text is None and files.get("text_section"):
        text = root.get(files["text_section"])
    if not isinstance(text, Mapping):
        raise ScaffoldError(f"{headers.source}: {files['text']} is missing", hint="the training module reads it")
    fields: dict[str, Any] = {}
    for entry in checkpoint["text_config"]:
        if entry["key"] not in text:
            raise ScaffoldError(f"{headers.source}: {files['text']} has no {quoted(entry['key'])}")
        fields[entry["field"]] = text[entry["key"]]
    for entry in checkpoint["root_config"]:
        found: Any = root if entry["path"] else None
        for key in entry["path"].split(".") if entry["path"] else ():
            found = found.get(key) if isinstance(found, Mapping) else None
        fields[entry["field"]] = entry["default"] if found is None else found
    for name, value in fields.items():
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ScaffoldError(f"{headers.source}: {name} is {quoted(value)}", hint="expected a number")
    return fields, None


def decided_by_tensors(
    tree: ast.Module, module: str, position_table: str | None, key_map: KeyMap, headers: CheckpointHeaders
) -> dict[str, Any]:
    """Return the sizes that ``from_pretrained`` takes from tensors instead of the configuration.

    Args:
        tree: the rendered module.
        module: the training module's class.
        position_table: parameter name of the position table, ``(side * side, width)``.
        key_map: leads from parameters to the checkpoint's keys.
        headers: the checkpoint.
    """
    taken = _assigned(tree, module)
    found: dict[str, Any] = {}
    for field, parameter in (("max_latent_size", position_table), ("vocab_size", "embed_tokens.weight")):
        key = key_map.invert(parameter) if parameter is not None and field in taken else None
        tensor = headers.tensors.get(key) if key is not None else None
        if tensor is not None and tensor.shape:
            rows = tensor.shape[0]
            found[field] = math.isqrt(rows) if field == "max_latent_size" else rows
    return found


def _assigned(tree: ast.Module, module: str) -> set[str]:
    """Return the fields of the configuration that ``from_pretrained`` sets."""
    for cls in tree.body:
        if isinstance(cls, ast.ClassDef) and cls.name == module:
            for method in cls.body:
                if isinstance(method, ast.FunctionDef) and method.name == "from_pretrained":
                    return {
                        target.attr
                        for node in ast.walk(method)
                        if isinstance(node, ast.Assign)
                        for target in node.targets
                        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name)
                        if target.value.id == "config"
                    }
    return set()
