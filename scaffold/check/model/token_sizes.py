"""How many values a latent token has, by the configuration of a package and by what ``scaffold.toml`` records."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.bounded import operate
from scaffold.check.model.package import Package
from scaffold.check.model.pyfile import PythonFile
from scaffold.check.model.recorded_facts import recorded
from scaffold.check.model.submodules import submodules

_OPERATORS = (ast.Mult, ast.Pow, ast.Add)
_TOKEN = ("(p q c)", "(c p q)")
_MOST = 64


def token_sizes(package: Package) -> Iterator[tuple[PythonFile, ast.AST, str]]:
    """Yield the property that says another size of a token than the checkpoint's projection has, with what is wrong.

    A token of ``(p q c)`` has ``patch * patch * channels`` values. Only where the defaults that the property is made
    of are the recorded numbers themselves.
    """
    config, module = package.config_class, package.training_module
    name = (recorded(package, "architecture", "input_projection") or "").strip('"')
    layout = recorded(package, "latents", "layout") or ""
    numbers = [recorded(package, "latents", key) or "" for key in ("patch", "channels")]
    if config is None or module is None or not all(text.isdigit() and len(text) < 10 for text in numbers):
        return
    if not any(token in layout for token in _TOKEN):
        return
    patch, channels = (int(text) for text in numbers)
    for built in submodules(module):
        size = (
            built.made.args[0]
            if built.name == name and built.qualified == "torch.nn.Linear" and built.made.args
            else None
        )
        method = config.method(size.attr) if isinstance(size, ast.Attribute) else None
        if method is None or method.file not in package.files or len(method.returns) != 1:
            continue
        defaults: set[int] = set()
        value = method.returns[0].value
        found = _worked_out(package, value, defaults) if value is not None else None
        if value is not None and found is not None and defaults == {patch, channels} and found != patch**2 * channels:
            text = f"a token has {patch**2 * channels} values in the checkpoint, and {found} by this"
            yield method.file, value, text


def _worked_out(package: Package, node: ast.expr, defaults: set[int], depth: int = 0) -> int | None:
    """Return what a property of the configuration is with the defaults of the fields."""
    if depth > _MOST:
        return None
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int and node.value <= _MOST else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, _OPERATORS):
        left, right = (_worked_out(package, side, defaults, depth + 1) for side in (node.left, node.right))
        if left is None or right is None or (isinstance(node.op, ast.Pow) and not 0 <= right <= 4):
            return None
        try:
            return int(operate(type(node.op), left, right))
        except ValueError:
            return None
    config = package.config_class
    field = config.fields.get(node.attr) if isinstance(node, ast.Attribute) and config is not None else None
    value = field.file.value(field.value) if field is not None and field.value is not None else None
    if type(value) is not int:
        return None
    defaults.add(value)
    return value
