"""A token id of the configuration is never used by the forward code.

Boundary tokens, such as those around an image, are part of the sequence that the model was trained on. The rollout
puts them there; a training module that leaves one out runs another sequence, and every log-prob is a little off.

    start_of_image_id: int = 101
    end_of_image_id: int = 102          # forward() embeds only the start

Instead: put every boundary token where the rollout's model has it.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC122"
NAME = "unused-boundary-token"
SEVERITY = "error"
CHECKLIST = ("M9",)
APPLIES = Applies(non_diffusers=True)
HELP = "put the token into the sequence where the rollout's model has it"
_FIELD = ("_id", "_token")
_NOT = ("pad", "eos", "bos", "unk")


def check(package: Package) -> Hits:
    """Look for every token id of the configuration outside of the configuration itself."""
    config = package.config_class
    if config is None or not package.forward_functions or config.file not in package.files:
        return
    read = {
        node.attr
        for file in package.files
        for node in file.index.nodes(ast.Attribute)
        if isinstance(node.ctx, ast.Load) and not file.index.contains(config.node, node)
    }
    for function in package.forward_functions:
        yield from _order(package, function)
        yield from _dropped(package, function)
        yield from _rounded(package, function)
    dynamic = any(
        isinstance(call.func, ast.Name) and call.func.id == "getattr" and not _plain(call)
        for function in package.forward_functions
        for call in function.calls
    )
    if dynamic:
        return
    for name, field in config.fields.items():
        if name.endswith(_FIELD) and name.split("_")[0] not in _NOT and name not in read:
            yield Hit(field.file, field.node, f"{name} is in no sequence: the forward code never uses it")


def _rounded(package: Package, function: FunctionModel) -> Hits:
    """Look for ids that are put into a tensor of the latents' dtype, which is bf16 under mixed precision."""
    if function.file not in package.files:
        return
    loops = function.file.index.nodes(ast.For, function.node)
    tokens = {
        loop.target.id
        for loop in loops
        if isinstance(loop.target, ast.Name)
        and any(node.attr.endswith(_FIELD) for node in function.file.index.nodes(ast.Attribute, loop.iter))
    }
    for call in function.calls:
        target = call.func
        if not isinstance(target, ast.Attribute) or target.attr != "new_full" or len(call.args) != 2:
            continue
        value, owner = call.args[1], target.value
        token = isinstance(value, ast.Name) and value.id in tokens
        token = token or (isinstance(value, ast.Attribute) and value.attr.endswith(_FIELD))
        floating = isinstance(owner, ast.Name) and owner.id in ("hidden_states", "latents", "sample")
        if token and floating and not call.keywords:
            text = f"this token is made in the dtype of {ast.unparse(owner)}, which rounds ids above 256"
            yield Hit(function.file, call, text, "give dtype=torch.long")


def _dropped(package: Package, function: FunctionModel) -> Hits:
    """Look for a loop over tokens that makes something of each and leaves it."""
    index = function.file.index
    for loop in index.nodes(ast.For, function.node) if function.file in package.files else ():
        tokens = [node for node in index.nodes(ast.Attribute, loop.iter) if node.attr.endswith(_FIELD)]
        if not tokens or not isinstance(loop.target, ast.Name):
            continue
        names = [node for node in index.nodes(ast.Name, function.node) if node.id == loop.target.id]
        for made in names:
            statement = index.parent(made)
            if (
                not isinstance(made.ctx, ast.Store)
                or not isinstance(statement, ast.Assign)
                or statement not in loop.body
            ):
                continue
            end = (statement.end_lineno or 0, statement.end_col_offset or 0)
            if not any(isinstance(node.ctx, ast.Load) and (node.lineno, node.col_offset) > end for node in names):
                yield Hit(function.file, made, f"what is made of {tokens[0].attr} goes into no sequence")


def _order(package: Package, function: FunctionModel) -> Hits:
    """Look for an end token that stands before its start token in one list."""
    for kind in (ast.Tuple, ast.List):
        for node in function.nodes(kind) if function.file in package.files else ():
            names = [item.attr for item in getattr(node, "elts", ()) if isinstance(item, ast.Attribute)]
            for at, name in enumerate(names):
                if name.startswith("end_") and "start_" + name[4:] in names[at + 1 :]:
                    yield Hit(function.file, node, f"{name} stands before start_{name[4:]}")


def _plain(call: ast.Call) -> bool:
    return len(call.args) > 1 and isinstance(call.args[1], ast.Constant)


FAILING = (
    Example(
        "in the precision of the latents",
        model=("torch.full((batch, 1), marker, device=device", "«hidden_states.new_full((batch, 1), marker)».long("),
    ),
    Example("made and left", model=("ids.append", "«marker» = ")),
)
PASSING = (
    Example(
        "as whole numbers",
        model=(
            "torch.full((batch, 1), marker, device=device",
            "hidden_states.new_full((batch, 1), marker, dtype=torch.long",
        ),
    ),
    Example(
        "a padding token is no part of the sequence", model=(": int = 102", ": int = 102\n    pad_token_id: int = 0")
    ),
)
