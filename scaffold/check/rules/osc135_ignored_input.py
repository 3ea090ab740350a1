"""``forward`` takes an input and does not read it.

The adapter prepares it for every step, and the velocity does not depend on it. Positions that are counted instead of
given, a timestep that is not embedded: the module computes something else than the rollout's model.

    def forward(self, hidden_states, timestep, text_token_ids, latent_pos_ids):
        latents = latents + self.latent_pos_embed(torch.arange(latents.shape[1]))      # not latent_pos_ids

Instead: use every input where the upstream model uses it.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.calls import bind, resolve
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC135"
NAME = "ignored-input"
SEVERITY = "error"
CHECKLIST = ("T4", "M7", "pitfall 27")
APPLIES = Applies(non_diffusers=True)
HELP = "use the input, or take it out of the signature and of prepare_model_inputs()"


def check(package: Package) -> Hits:
    """Look whether each parameter of ``forward`` is read in the body, and the ends of names that helpers are given."""
    yield from _endings(package)
    module = package.training_module
    forward = module.method("forward") if module is not None else None
    if module is None or forward is None or forward.is_abstract or forward.file not in package.files:
        return
    names = forward.file.index.nodes(ast.Name, forward.node)
    if any(node.id in ("locals", "vars") for node in names):
        return
    read = {node.id for node in names if isinstance(node.ctx, ast.Load)}
    for name in forward.parameters:
        # A mask that is not read is the affair of unhidden-padding-key.
        if name not in read and not name.startswith("_") and "mask" not in name:
            node = forward.parameter_node(name) or forward.node
            yield Hit(forward.file, node, f"{module.name}.forward() takes {name} and does not use it")


_PROJECTED = "        v = torch.cat((self.v_proj(context), self.v_proj_gen(latents)), dim=1)\n"
_PICKED = '        v = torch.cat((self._of("v", context), self._of("v", latents, "_gen")), dim=1)\n'
_FORWARD = "    def forward(self, context: Tensor, latents: Tensor, key_mask: Tensor | None) -> tuple[Tensor, Tensor]:\n        q ="
_PICK = """    def _of(self, name: str, x: Tensor, {}) -> Tensor:
        return getattr(self, f"{{name}}_proj{}")(x)

"""


def _endings(package: Package) -> Hits:
    """Look for a helper that picks sub-modules by name, is told which, and does not read it."""
    for function in package.forward_functions:
        if function.file not in package.files or function.cls is None:
            continue
        picks = [
            call
            for call in function.calls
            if function.file.qualified(call.func) == "getattr"
            and len(call.args) == 2
            and isinstance(call.args[0], ast.Name)
            and call.args[0].id == function.bound
            and not isinstance(call.args[1], ast.Constant)
        ]
        read = {node.id for node in function.file.index.nodes(ast.Name, function.node)} if picks else set()
        for name in function.parameters if picks else ():
            given = [
                bind(call, function).get(name)
                for caller in package.forward_functions
                for call in caller.calls
                if resolve(caller.file, call, caller.cls) == function
            ]
            if name not in read and any(isinstance(v, ast.Constant) and isinstance(v.value, str) for v in given):
                node = function.parameter_node(name) or function.node
                text = f"{function.name}() is told {name} and picks the same sub-modules for every value of it"
                yield Hit(function.file, node, text)


FAILING = (
    Example(
        "which of two sets of weights",
        {
            "model": [
                (_PROJECTED, _PICKED),
                (_FORWARD, _PICK.format("«suffix»: str = ''", "") + _FORWARD),
            ]
        },
    ),
    Example(
        "positions",
        {
            "model": [
                (
                    "self.latent_pos_embed(latent_pos_ids)",
                    "self.latent_pos_embed(torch.arange(latents.shape[1], device=device))",
                ),
                ("        latent_pos_ids: Tensor,\n", "        «latent_pos_ids»: Tensor,\n"),
            ]
        },
    ),
)
PASSING = (
    Example(
        "which of two sets of weights, and used",
        {
            "model": [
                (_PROJECTED, _PICKED),
                (_FORWARD, _PICK.format("suffix: str = ''", "{suffix}") + _FORWARD),
            ]
        },
    ),
    Example("all are used"),
    Example(
        "the rest is taken in",
        {
            "model": [
                (
                    "text_attention_mask: Tensor | None = None,\n    ) ->",
                    "text_attention_mask: Tensor | None = None,\n        **kwargs,\n    ) ->",
                )
            ]
        },
    ),
)
