"""Latent tokens look up another row of the position table than in the rollout.

A learned table of positions is a square: the token in row ``r`` and column ``c`` has entry ``r * side + c``, whatever
the image's own size. Rows counted with the image's width, height and width exchanged, or a grid walked column by column
give each token the place of another one. Square images at the largest size hide it; every other image is trained on
other positions than it was sampled with.

    row = torch.arange(rows)[:, None] * columns              # the table has config.max_latent_size entries in a row

Instead: ``torch.arange(rows)[:, None] * side + torch.arange(columns)``, rows from the height, columns from the width.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.arrays import Array
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.worked_inputs import COLUMNS, PROMPTS, ROWS, WorkedInputs, worked_inputs
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC231"
NAME = "misplaced-latent"
SEVERITY = "error"
CHECKLIST = ("T4", "M7")
APPLIES = Applies(non_diffusers=True, objective="policy_gradient", image_to_image=False)
HELP = "index the table by row * side + column: rows from the height, columns from the width, side that of the table"


def check(package: Package) -> Hits:
    """Work the positions of a small image out, and compare them with those of a square table."""
    for adapter in package.training_adapters:
        inputs = worked_inputs(package, adapter) if adapter.file in package.files else None
        if inputs is None or inputs.side is None:
            continue
        grids = {key: ids for key, value in inputs.positive.items() if (ids := _grid(value)) is not None}
        wanted = [row * inputs.side + column for row in range(ROWS) for column in range(COLUMNS)]
        for key, ids in grids.items() if len(grids) == 1 else ():
            if ids != wanted and _are_positions(ids):
                function, place = _place(package, inputs, key)
                yield Hit(function.file, place, _said(ids, wanted, inputs.side))


def _grid(value: object) -> list[int] | None:
    """Return the positions of the first sample, where a value is one whole number for each latent token."""
    count = ROWS * COLUMNS
    if not isinstance(value, Array) or value.shape not in ((count,), (len(PROMPTS), count), (1, count)):
        return None
    first = value.values[:count]
    return first if all(isinstance(item, int) and not isinstance(item, bool) for item in first) else None


def _are_positions(ids: list[int]) -> bool:
    """Whether these are positions at all: no marks of a few kinds."""
    return len(set(ids)) > COLUMNS


def _said(ids: list[int], wanted: list[int], side: int) -> str:
    """Return what is wrong with positions."""
    rows, columns = range(ROWS), range(COLUMNS)
    if ids == [row * side + column for row in columns for column in rows]:
        return "rows and columns of the image are exchanged: it is read as one of its width in height"
    if ids == [row * COLUMNS + column for row in rows for column in columns]:
        return f"rows lie one image's width apart in these positions, {side} apart in the table"
    if ids == [column * side + row for row in rows for column in columns]:
        return "positions count column by column, the table row by row"
    at = next(i for i, (one, other) in enumerate(zip(ids, wanted, strict=True)) if one != other)
    row, column = divmod(at, COLUMNS)
    return f"the token in row {row}, column {column} looks up entry {ids[at]} of the table, its own is {wanted[at]}"


def _place(package: Package, inputs: WorkedInputs, key: str) -> tuple[FunctionModel, ast.AST]:
    """Return where positions are computed: the first arithmetic of a range in the package, else where they are given."""
    for function in reversed(inputs.entered):
        if function.file not in package.files:
            continue
        for node in function.file.index.nodes(ast.BinOp, function.node):
            calls = function.file.index.nodes(ast.Call, node)
            if any((function.file.qualified(call.func) or "").endswith(".arange") for call in calls):
                return function, node
    for name in inputs.method.file.index.nodes(ast.Constant, inputs.method.node):
        if name.value == key:
            return inputs.method, name
    return inputs.method, inputs.method.node


_SPEC = """[upstream]
version = "0.27.0rc1"

[latents]
downsample = 8
patch = 2

[architecture]
position_table_side = 8

[prompt]
column = "prompt_token_ids"
negative = "empty"
"""
_FLAT = "torch.arange(latents.shape[2], device=latents.device).expand(latents.shape[0], -1)"
_CALL = "cls._positions(module.config, model_config, latents)"
_BEFORE = "    @classmethod\n    def _prompt_token_ids_to_batch("
_HEAD = """    @staticmethod
    def _positions(config, model_config, latents):
        rows, columns = model_config.pipeline.height // 16, model_config.pipeline.width // 16
"""
_RIGHT = "torch.arange(rows)[:, None] * config.max_latent_size + torch.arange(columns)"


def _positions(expression: str, head: str = _HEAD) -> dict[str, list[tuple[str, str]] | str]:
    """Return the changes that compute positions so."""
    body = f"{head}        grid = {expression}\n        return grid.flatten().expand(latents.shape[0], -1)\n\n"
    return {"training": [(_FLAT, _CALL), (_BEFORE, body + _BEFORE)], "spec": _SPEC}


_ALSO = ("OSC214",)
FAILING = (
    Example(
        "the image's own width",
        _positions("«torch.arange(rows)[:, None] * columns + torch.arange(columns)»"),
        also=_ALSO,
    ),
    Example(
        "height and width exchanged",
        _positions(f"«{_RIGHT}»", _HEAD.replace("rows, columns =", "columns, rows =")),
        also=_ALSO,
    ),
    Example(
        "column by column",
        _positions("«torch.arange(rows)[:, None] + torch.arange(columns) * config.max_latent_size»"),
        also=_ALSO,
    ),
    Example(
        "counted from one",
        _positions(f"«{_RIGHT} + 1»"),
        also=_ALSO,
    ),
    Example(
        "turned round",
        _positions("«torch.arange(columns)[:, None] * config.max_latent_size + torch.arange(rows)»"),
        also=_ALSO,
    ),
    Example(
        "the number of tokens for the side",
        _positions("«torch.arange(rows)[:, None] * latents.shape[2] + torch.arange(columns)»"),
        also=_ALSO,
    ),
)
PASSING = (
    Example("no table is recorded"),
    Example("as the table", _positions(_RIGHT), also=_ALSO),
    Example(
        "through a grid of both",
        _positions(
            "y * config.max_latent_size + x",
            _HEAD + '        y, x = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")\n',
        ),
        also=_ALSO,
    ),
    Example(
        "from a list",
        _positions(
            "torch.tensor([row * config.max_latent_size + column for row in range(rows) for column in range(columns)])"
        ),
        also=_ALSO,
    ),
    Example(
        "cut out of the whole table",
        _positions("torch.arange(config.max_latent_size**2).view(config.max_latent_size, -1)[:rows, :columns]"),
        also=_ALSO,
    ),
    Example("with three numbers a token", {"training": [(_FLAT, _FLAT + "[..., None]")], "spec": _SPEC}),
    Example("of diffusers", base="diffusers"),
)
