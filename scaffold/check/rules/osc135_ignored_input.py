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
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC135"
NAME = "ignored-input"
SEVERITY = "error"
CHECKLIST = ("T4", "M7", "pitfall 27")
APPLIES = Applies(non_diffusers=True)
HELP = "use the input, or take it out of the signature and of prepare_model_inputs()"


def check(package: Package) -> Hits:
    """Look whether each parameter is read in the body."""
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


FAILING = (
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
