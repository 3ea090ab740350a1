"""The training adapter reads a column of the data set that v1 drops.

A row of verl-omni's v1 trainer holds the rollout's tensors and four columns: ``reward_model``, ``data_source``,
``extra_info`` and ``raw_prompt``. Whatever else the preprocessor writes reaches the rollout and not training: the first
update stops with ``KeyError``, after the rollout has been paid for.

    ids = micro_batch["prompt_token_ids"]          # a column of the preprocessor

Instead: return what the rollout used, as a tensor, in ``prompt_embeddings=`` or ``rl=`` of ``rollout_output()``.
Seen in verl-omni#511.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.micro_batch import STANDARD, columns, read_keys, rollout_keys
from scaffold.check.model.package import V1_COLUMNS, Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC236"
NAME = "dropped-column"
SEVERITY = "error"
CHECKLIST = ("D2", "pitfall 45")
APPLIES = Applies(non_diffusers=True, objective="policy_gradient")
HELP = "return it from the rollout as a tensor, in prompt_embeddings= or rl= of rollout_output()"
_LOADERS = {"index", "ability", "agent_name", "tools_kwargs", "interaction_kwargs"}


def check(package: Package) -> Hits:
    """Look for reads of what the preprocessor alone makes, where a script starts v1."""
    scripts = package.v1_scripts
    given, written = rollout_keys(package), columns(package)
    if not scripts or given is None or written is None:
        return
    dropped = {key for keys in written for key in keys} - V1_COLUMNS - given - (STANDARD - _LOADERS)
    for read in read_keys(package):
        if read.key in dropped and (not read.optional or isinstance(read.file.index.parent(read.node), ast.Subscript)):
            text = f"{scripts[0].name} trains with v1, whose rows have no column {read.key!r}"
            yield Hit(read.file, read.node, text)


_V1 = ("verl_omni.trainer.main_diffusion ", "verl_omni.trainer.main_diffusion_v1 ")
_KEYS = ('micro_batch["prompt_token_ids"]', 'micro_batch[«"prompt_token_ids"»]')
_USE_V1 = "trainer:\n  total_epochs: 30\n  use_v1: %s\n"
_YAML = "verl_omni/trainer/config/_generated_diffusion_trainer.yaml"
FAILING = (
    Example("ids of the preprocessor", launch=_V1, training=_KEYS),
    Example("in a checkout that has v1 on", {_YAML: _USE_V1 % "true"}, e2e=_V1, training=_KEYS, also="OSC525"),
)
PASSING = (
    Example("v1 switched off", {_YAML: _USE_V1 % "false"}, launch=_V1, also="OSC525"),
    Example(
        "returned by the rollout",
        launch=_V1,
        rollout=(
            "            media=output.output,\n",
            '            media=output.output,\n            rl={"prompt_token_ids": self.ids},\n',
        ),
    ),
)
