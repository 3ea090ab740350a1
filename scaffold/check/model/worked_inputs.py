"""What an adapter feeds its module with, worked out for two short prompts and a small image."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

from scaffold.check.model.arrays import Array
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.recorded_facts import recorded, recorded_number
from scaffold.check.model.values import UNKNOWN, known
from scaffold.check.model.worked_out import OPAQUE, Bound, NotPlainError, RefusedError, Stub, Worked

ROWS, COLUMNS = 3, 5
PROMPTS = ([11, 12, 13, 14], [21, 22])
WIDTH = max(map(len, PROMPTS))
METHOD = "prepare_model_inputs"
_PARAMETERS = 10


class WorkedInputs(NamedTuple):
    """What ``prepare_model_inputs`` answers.

    Attributes:
        positive, negative: arguments of the module with and without the prompt; the second None where there is none.
        method: the method.
        entered: functions whose text was followed.
        side: entries in a row of the table of positions.
    """

    positive: dict[str, Any]
    negative: dict[str, Any] | None
    method: FunctionModel
    entered: list[FunctionModel]
    side: int | None


@lru_cache(maxsize=32)
def worked_inputs(package: Package, adapter: ClassModel) -> WorkedInputs | None:
    """Return what an adapter feeds its module with, None where that is not plain."""
    method = adapter.method(METHOD)
    patch, downsample = recorded_number(package, "latents", "patch"), recorded_number(package, "latents", "downsample")
    if method is None or len(method.positional) != _PARAMETERS or not patch or not downsample:
        return None
    side = recorded_number(package, "architecture", "position_table_side")
    pixels, batch = patch * downsample, len(PROMPTS)
    shape = (batch, 2, ROWS * COLUMNS, 1)
    config = Stub(_fields(package.config_class), cls=package.config_class)
    pipeline = {"height": ROWS * pixels, "width": COLUMNS * pixels}
    column = recorded(package, "prompt", "column")
    values = {
        "module": Stub({"config": config}, open_ended=False),
        "model_config": Stub({"pipeline": Stub(pipeline), "algo": Stub({})}),
        "latents": Array(shape, [0.0] * prod(shape)),
        "micro_batch": {column: [list(prompt) for prompt in PROMPTS]},
        "step": 0,
    }
    work = Worked({"unwrap_non_tensor_data": lambda value: value})
    names = ("module", "model_config", "latents", "", "", "", "", "", "micro_batch", "step")
    try:
        found = work.call(Bound(method, None, adapter), *(values.get(name, OPAQUE) for name in names))
    except (NotPlainError, RefusedError):
        return None
    if not isinstance(found, (tuple, list)) or len(found) != 2 or not isinstance(found[0], dict):
        return None
    if not (found[1] is None or isinstance(found[1], dict)):
        return None
    return WorkedInputs(found[0], found[1], method, list(work.entered), side)


def _fields(cls: ClassModel | None) -> dict[str, Any]:
    """Return the defaults of a configuration's fields, as far as they are plain."""
    found: dict[str, Any] = {}
    for name, attribute in cls.fields.items() if cls is not None else ():
        value = attribute.file.value(attribute.value) if attribute.value is not None else UNKNOWN
        found[name] = value if value is not UNKNOWN and known(value) else OPAQUE
    return found
