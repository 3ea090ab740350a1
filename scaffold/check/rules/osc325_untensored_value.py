"""The rollout hands training a value that is not a tensor.

verl-omni's v1 trainer writes the tensors among the rollout's values into a row and drops the others without a word:
bytes, lists, strings, dictionaries. Training then misses the key, or trains without what it was sent.

    rollout_output(media=image, rl={"calls": buffer.getvalue()})

Instead: a tensor with the batch in front; bytes as ``uint8`` with their length in front, lengths as integers. Seen in
verl-omni#489.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.calls import follow, resolve, returned
from scaffold.check.model.package import Package
from scaffold.check.model.python import FunctionModel
from scaffold.check.model.sde import options
from scaffold.check.model.sides import side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC325"
NAME = "untensored-value"
SEVERITY = "error"
CHECKLIST = ("R6", "pitfall 45")
APPLIES = Applies(non_diffusers=True, objective="policy_gradient")
HELP = "make it a tensor with the batch in front; of bytes a uint8 tensor"
_SHIPPING = ("prompt_embeddings", "rl")
_METHODS = {"tolist", "item", "encode", "decode", "getvalue", "tobytes", "format", "join", "hex"}
_PLAIN = {"bytes", "bytearray", "str", "repr", "list", "dict", "tuple", "set", "sorted", "int", "float", "bool", "len"}
_DUMPS = ("pickle.dumps", "json.dumps", "base64.b64encode", "dataclasses.asdict")
_LITERALS = (ast.JoinedStr, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp)
_DEEPEST = 5


def check(package: Package) -> Hits:
    """Look at the values of what the rollout hands over beside the trajectory."""
    if package.is_v0_only:
        return
    for name in _SHIPPING:
        for option in options(side_of(package, "rollout"), name):
            function, table = option.function, follow(option.function.file, option.value)
            if function.file not in package.files or not isinstance(table, ast.Dict):
                continue
            for key, value in zip(table.keys, table.values, strict=True):
                kind = _no_tensor(function, value, 0)
                if isinstance(key, ast.Constant) and kind is not None:
                    text = f"{key.value!r} is {kind}: a row of v1 keeps tensors alone"
                    yield Hit(function.file, value, text)


def _no_tensor(function: FunctionModel, value: ast.expr, hops: int) -> str | None:
    """Return what a value is where it is certainly no tensor; None is left out by the rollout's result."""
    file = function.file
    value = follow(file, value)
    if isinstance(value, ast.Constant):
        return None if value.value is None else f"a {type(value.value).__name__}"
    if isinstance(value, _LITERALS):
        return {ast.JoinedStr: "a str", ast.ListComp: "a list", ast.SetComp: "a set", ast.DictComp: "a dict"}.get(
            type(value), f"a {type(value).__name__.lower()}"
        )
    if isinstance(value, ast.IfExp):
        kinds = [_no_tensor(function, arm, hops) for arm in (value.body, value.orelse)]
        return next((kind for kind in kinds if kind), None)
    if not isinstance(value, ast.Call) or hops > _DEEPEST:
        return None
    name = file.qualified(value.func) or ""
    if name in _PLAIN or name in _DUMPS:
        return f"what {name}() returns"
    called = resolve(file, value, function.cls)
    if isinstance(called, FunctionModel):
        kinds = [_no_tensor(called, result, hops + 1) for result in returned(called)]
        return kinds[0] if kinds and all(kinds) else None
    if isinstance(value.func, ast.Attribute) and value.func.attr in _METHODS and not name.startswith("torch."):
        return f"what .{value.func.attr}() returns"
    return None


_MEDIA = "            media=output.output,\n"
_V1 = ("verl_omni.trainer.main_diffusion ", "verl_omni.trainer.main_diffusion_v1 ")
_READ = (
    '        latents, timesteps = scheduler_inputs["all',
    '        print(scheduler_inputs["shapes"])\n        latents, timesteps = scheduler_inputs["all',
)
FAILING = (
    Example(
        "a list",
        launch=_V1,
        rollout=(_MEDIA, f'{_MEDIA}            rl={{"shapes": «latents.tolist()»}},\n'),
        training=_READ,
        also="OSC236",
    ),
    Example(
        "bytes that a helper makes",
        launch=_V1,
        rollout=[
            (_MEDIA, f'{_MEDIA}            prompt_embeddings={{"shapes": «self._packed(latents)»}},\n'),
            (
                "    def _decode_prompt",
                "    def _packed(self, value):\n        return pickle.dumps(value)\n\n    def _decode_prompt",
            ),
            ("import torch\n", "import pickle\n\nimport torch\n"),
        ],
        training=_READ,
        also="OSC236",
    ),
)
PASSING = (
    Example(
        "a tensor",
        launch=_V1,
        rollout=(_MEDIA, f'{_MEDIA}            rl={{"shapes": torch.tensor([list(latents.shape)])}},\n'),
        training=_READ,
        also="OSC236",
    ),
    Example(
        "v0, which keeps everything",
        rollout=(_MEDIA, f'{_MEDIA}            rl={{"shapes": latents.tolist()}},\n'),
        training=_READ,
    ),
)
