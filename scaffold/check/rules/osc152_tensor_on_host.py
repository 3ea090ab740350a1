"""A tensor is made without a device and joined with one that is on the accelerator.

``torch.full`` and its like make their tensor in host memory unless they are given a ``device``. On a CPU nothing shows;
on the first accelerator the step stops: ``Expected all tensors to be on the same device``.

    ids.append(torch.full((batch, 1), marker))               # and ids[0] came with the batch

Instead: ``device=`` of a tensor that is there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.example import Example
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.placed import Placed
from scaffold.check.model.ported_code import written_files
from scaffold.check.model.sides import side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC152"
NAME = "tensor-on-host"
SEVERITY = "error"
CHECKLIST = ("M9", "pitfall 38")
APPLIES = Applies()
HELP = "give it the device of a tensor that is there"
_JOINING = {"torch.cat", "torch.stack", "torch.concat", "torch.hstack", "torch.vstack", "torch.where"}


def check(package: Package) -> Hits:
    """Look at what forward code and training step join or compute with."""
    written = written_files(package)
    if package.mentions("set_default_device") or package.mentions("DeviceContext"):
        return
    functions = list(dict.fromkeys([*package.forward_functions, *side_of(package, "training").functions]))
    for function in functions:
        if function.file in written:
            placed = Placed(function, functions)
            if placed.made:
                for parts in _together(function):
                    yield from _mixed(function, placed, parts)


def _together(function: FunctionModel) -> Iterator[list[ast.expr]]:
    """Yield the tensors that have to be on one device."""
    for call in function.calls:
        name = function.file.qualified(call.func)
        if name in _JOINING and call.args:
            first = call.args[0]
            listed = first.elts if isinstance(first, (ast.List, ast.Tuple)) else [first]
            yield list(call.args[1:3]) if name == "torch.where" else listed
    for node in function.file.index.nodes(ast.BinOp, function.node):
        yield [node.left, node.right]


def _mixed(function: FunctionModel, placed: Placed, parts: list[ast.expr]) -> Hits:
    """Report what is certainly on the host, where something else certainly is not."""
    members = [member for part in parts for member in placed.members(part)]
    if not any(placed.follows_input(member) for member in members):
        return
    for member in members:
        made = placed.on_host(member)
        if made is not None:
            text = f"{function.file.qualified(made.func)}() without a device makes a tensor on the host"
            yield Hit(function.file, made, f"{text}, and it is joined with one that is not there")


_MARKER = "            ids.append(torch.full((batch, 1), marker, device=device))\n"
_ON_HOST = _MARKER.replace("torch.full((batch, 1), marker, device=device)", "«torch.full((batch, 1), marker)»")
_POS = "        latents = latents + self.latent_pos_embed(latent_pos_ids)\n"
_MASK = "        key_mask = None\n        if text_attention_mask is not None:\n"
_ROWS = "torch.arange(ids.shape[1], device=device) < lengths[:, None]"
FAILING = (
    Example("appended to a list that is joined", {"model": [(_MARKER, _ON_HOST)]}),
    Example(
        "joined at once",
        {"model": [(_POS, _POS + "        latents = torch.cat((latents, «torch.zeros(batch, 1, 64)»), dim=1)\n")]},
    ),
    Example(
        "by a name",
        {
            "model": [
                (
                    _POS,
                    _POS
                    + "        scale = «torch.linspace(0, 1, 64)»\n        latents = latents * scale[None, None]\n",
                )
            ]
        },
    ),
    Example(
        "positions",
        {
            "model": [
                (
                    _POS,
                    _POS + "        first = timestep[:, None]\n"
                    "        places = «torch.arange(latents.shape[1])»[None] - first\n"
                    "        latents = latents + places[..., None]\n",
                )
            ]
        },
    ),
)
PASSING = (
    Example("on the device"),
    Example("moved", {"model": [(_MARKER, _MARKER.replace("marker, device=device)", "marker).to(device)"))]}),
    Example(
        "of no dimension",
        {"model": [(_POS, _POS + "        latents = latents * torch.tensor(0.5)\n")]},
    ),
    Example(
        "under a device",
        {
            "model": [
                (
                    _MARKER,
                    "            with device:\n                ids.append(torch.full((batch, 1), marker))\n",
                )
            ]
        },
    ),
    Example(
        "moved by name",
        {
            "model": [
                (
                    _POS,
                    _POS + "        scale = torch.linspace(0, 1, 64)\n        scale = scale.to(latents)\n"
                    "        latents = latents * scale\n",
                )
            ]
        },
    ),
    Example("of diffusers", base="diffusers"),
)
