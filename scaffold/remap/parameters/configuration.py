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
from scaffold.source.syntax import walk_tree

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
    if files.get("text_section") and (text is None or files["text"] == files["root"]):
        text = root.get(files["text_section"])
    if not isinstance(text, Mapping):
        raise ScaffoldError(f"{headers.source}: {files['text']} is missing", hint="the training module reads it")
    fields: dict[str, Any] = {}
    for entry in checkpoint["text_config"]:
        if entry["key"] not in text:
            raise ScaffoldError(f"{headers.source}: {files['text']} has no {quoted(entry['key'])}")
        fields[entry["field"]] = text[entry["key"]]
    for entry in [*checkpoint["root_config"], *checkpoint.get("fields", ())]:
        found = _lookup(root, entry["path"], entry.get("path_default", entry["default"]))
        if entry.get("over"):
            divisor = _lookup(root, entry["over"], entry["over_default"])
            if not (_is_number(found) and _is_number(divisor) and divisor):
                raise ScaffoldError(f"{headers.source}: {entry['path']} over {entry['over']} is no number")
            found = int(found / divisor)
        fields[entry["field"]] = found
    for name, value in fields.items():
        if not _is_number(value) and not (isinstance(value, list) and all(map(_is_number, value))):
            raise ScaffoldError(f"{headers.source}: {name} is {quoted(value)}", hint="expected a number")
    return fields, None


def _lookup(root: Any, path: str, default: Any) -> Any:
    """Return the entry at a dotted path, else the default; no path is none."""
    found = root if path else None
    for key in path.split(".") if path else ():
        found = found.get(key) if isinstance(found, Mapping) else None
    return default if found is None else found


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


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
                        for node in walk_tree(method)
                        if isinstance(node, ast.Assign)
                        for target in node.targets
                        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name)
                        if target.value.id == "config"
                    }
    return set()
