"""The training adapter reads a key of the micro-batch that nothing puts there.

A micro-batch holds what the agent loop makes of every prompt, the columns that the preprocessor wrote, and what the
rollout returns beside the media. A key that comes from none of them raises ``KeyError`` in the first training step,
after the whole rollout has been paid for.

    ids = micro_batch["prompt_ids"]          # the preprocessor writes "prompt_token_ids"

Instead: read the column under the name that the preprocessor, or the rollout's result, gives it.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.calls import follow
from scaffold.check.model.micro_batch import STANDARD, columns, read_keys, rollout_keys
from scaffold.check.model.package import Package
from scaffold.check.model.python import PythonFile
from scaffold.check.model.sde import options
from scaffold.check.model.sides import side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC207"
NAME = "unproduced-batch-key"
SEVERITY = "error"
CHECKLIST = ("D2", "pitfall 28")
APPLIES = Applies(objective="policy_gradient")
HELP = "read the name under which the preprocessor or the rollout's result gives it"
_SHIPPING = ("prompt_embeddings", "rl")

# What the engine itself takes of the rollout's embeddings.
_ENGINES = {
    f"{sign}{name}"
    for sign in ("", "negative_")
    for name in ("prompt_embeds", "prompt_embeds_mask", "pooled_prompt_embeds")
}


def check(package: Package) -> Hits:
    """Compare the keys that are read with those of the preprocessors and of the rollout."""
    given, written = rollout_keys(package), columns(package)
    if given is None:
        return
    shipped = _shipped(package)
    reads = list(read_keys(package))
    unread = sorted(key for key in shipped - _ENGINES if not any(_named(file, key) for file in _readers(package)))
    for parameter in _embeddings(package) if unread else ():
        text = f"training takes {parameter.arg!r} of the rollout, which ships {unread[0]!r} and nothing of that name"
        yield Hit(side_of(package, "training").adapters[0].file, parameter, text, "use one name on both sides")
    for read in reads:
        if read.key in STANDARD | given:
            continue
        optional = read.optional and not isinstance(read.file.index.parent(read.node), ast.Subscript)
        missing = written is not None and any(read.key not in keys for keys in written)
        if missing and not optional:
            yield Hit(read.file, read.node, f"neither the preprocessor nor the rollout makes {read.key!r}")
        elif unread and (missing or written is None):
            text = f"nothing makes {read.key!r}, and nothing reads {unread[0]!r} that the rollout ships"
            yield Hit(read.file, read.node, text, "use one name on both sides")


def _shipped(package: Package) -> set[str]:
    """Return the names of what the rollout hands to training beside the trajectory, where they are written out."""
    side = side_of(package, "rollout")
    tables = [follow(option.function.file, option.value) for name in _SHIPPING for option in options(side, name)]
    keys = [key for table in tables if isinstance(table, ast.Dict) for key in table.keys]
    return {key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}


def _embeddings(package: Package) -> list[ast.arg]:
    """Return the parameters of ``prepare_model_inputs`` that it reads and the rollout does not ship.

    Empty where what is shipped is not written out as tables of names.
    """
    rollout, training = side_of(package, "rollout"), side_of(package, "training")
    tables = [follow(option.function.file, option.value) for option in options(rollout, "prompt_embeddings")]
    keys = [key for table in tables if isinstance(table, ast.Dict) for key in table.keys]
    method = training.adapters[0].method("prepare_model_inputs") if training.adapters else None
    plain = all(isinstance(table, ast.Dict) for table in tables)
    if method is None or not keys or not plain or not all(isinstance(key, ast.Constant) for key in keys):
        return []
    known = {key.value for key in keys if isinstance(key, ast.Constant)}
    loaded = {node.id for node in method.file.index.nodes(ast.Name, method.node) if isinstance(node.ctx, ast.Load)}
    taken = [*method.node.args.args, *method.node.args.kwonlyargs]
    return [p for p in taken if p.arg in _ENGINES & loaded and p.arg not in known and not p.arg.endswith("_mask")]


def _readers(package: Package) -> list[PythonFile]:
    """Return the files in which training may name a key."""
    made = {function.file for function in side_of(package, "rollout").functions}
    used = {function.file for function in side_of(package, "training").functions}
    return [file for file in package.files if file in used or file not in made]


def _named(file: PythonFile, key: str) -> bool:
    return any(node.value == key for node in file.index.nodes(ast.Constant))


_MEDIA = "            media=output.output,\n"
_EMBEDDINGS = [
    ("        prompt_embeds,\n        prompt_embeds_mask,", "        «prompt_embeds»,\n        prompt_embeds_mask,"),
    (
        '            "hidden_states": latents',
        '            "words": prompt_embeds,\n            "hidden_states": latents',
    ),
]
FAILING = (
    Example(
        "embeddings under a name that the engine does not know",
        rollout=(_MEDIA, f'{_MEDIA}            prompt_embeddings={{"embeds": latents}},\n'),
        training=_EMBEDDINGS,
        also="OSC206",
    ),
    Example("of the rollout", training=('"all_timesteps"', '«"all_sigmas"»')),
    Example(
        "shipped under one name and read under another",
        rollout=(_MEDIA, f'{_MEDIA}            rl={{"text_lengths": latents}},\n'),
        training=(
            '        latents, timesteps = scheduler_inputs["all',
            '        scheduler_inputs.get(«"text_length"»)\n        latents, timesteps = scheduler_inputs["all',
        ),
    ),
)
PASSING = (
    Example("what the agent loop gives", training=('"prompt_token_ids', '"prompts')),
    Example(
        "shipped and read",
        rollout=(_MEDIA, f'{_MEDIA}            rl={{"text_lengths": latents}},\n'),
        training=(
            '        latents, timesteps = scheduler_inputs["all',
            '        scheduler_inputs.get("text_lengths")\n        latents, timesteps = scheduler_inputs["all',
        ),
    ),
)
