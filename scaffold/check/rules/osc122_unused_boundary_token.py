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


def _plain(call: ast.Call) -> bool:
    return len(call.args) > 1 and isinstance(call.args[1], ast.Constant)


FAILING = (
    Example(
        "no end token",
        model=[
            ("(self.config.start_of_image_id, self.config.end_of_image_id)", "(self.config.start_of_image_id,)"),
            ("    end_of_image_id: int", "    «end_of_image_id»: int"),
        ],
    ),
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
        "a padding token is not part of the sequence", model=(": int = 102", ": int = 102\n    pad_token_id: int = 0")
    ),
)
