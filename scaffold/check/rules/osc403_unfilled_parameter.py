"""A parameter of the training module is filled by no key of the checkpoint.

It keeps its random start. A parity test of the output does not see it where the weight is multiplied by zero at the
start, unused for the tested input, or random on both sides; training then works on noise.

    self.proj_out = nn.Linear(…)        # the checkpoint calls it llm2vae, and the table says nothing

Instead: correct the name in the module or the row of the table; a parameter that the module computes by itself
belongs into a buffer that is not saved.
"""

from __future__ import annotations

import re

from scaffold.check.example import Example
from scaffold.check.example_keys import recorded_spec
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.filled_by_code import filled_by_code
from scaffold.check.model.key_tables import RecordedKeys, Rename, folded, key_tables, recorded_keys, renamed
from scaffold.check.model.module_parameters import built_buffers, built_parameters
from scaffold.check.model.module_paths import INDEX, module_paths
from scaffold.check.model.package import Package
from scaffold.check.model.submodules import Submodule
from scaffold.check.model.token_sizes import token_sizes
from scaffold.check.rule import Applies, Hit, Hits
from scaffold.checkpoint.fold import is_index

ID = "OSC403"
NAME = "unfilled-parameter"
SEVERITY = "error"
CHECKLIST = ("M6", "M7", "pitfall 22")
APPLIES = Applies(non_diffusers=True)
HELP = "correct the name in the module or in the key table; `omni-scaffold remap` shows the whole map"
_RANGE = re.compile(r"\{[^{}]*\}")


def check(package: Package) -> Hits:
    """Apply the table to the keys that ``scaffold.toml`` records and look for every parameter of the module."""
    keys, module = recorded_keys(package), package.training_module
    tables = [table for table in key_tables(package) if not table.ignores]
    ignores = [table for table in key_tables(package) if table.ignores]
    if keys is None or module is None or not tables or not module_paths(module).complete:
        return
    targets = []
    for key in keys.kept:
        row = renamed(tables, key)
        if row is not None and row.target is not None:
            targets.append(row.target + key[len(row.source) :])
    filled = {folded(target) for target in targets}
    by_code = filled_by_code(package)
    parameters = [found for found in built_parameters(module) if not by_code(folded(found[0]))]
    names = {folded(name) for name, _, _ in parameters}
    for table in ignores:
        for ignored in table.rows:
            own = [renamed(tables, key) for key in keys.kept if ignored.matches(key)]
            # A row that is shorter than the rename leaves its keys to it.
            own = [row for row in own if row is not None and len(row.source) < len(ignored.source)]
            if own and any(folded(keys.kept[key]) in names for key in keys.kept if ignored.matches(key)):
                text = f"keys that begin with {ignored.source!r} are ignored here, and fill parameters of the module"
                yield Hit(table.file, ignored.source_node, text, "remove the row")
    for name, file, call in built_buffers(module):
        taken = filled | {folded(target) for target in keys.kept.values()}
        if folded(name) not in taken and not by_code(folded(name)):
            text = f"no key of the checkpoint becomes the buffer {name!r}, which is saved with the weights"
            yield Hit(file, call, text, "give persistent=False")
    yield from (
        Hit(file, node, text, "compute it as patch * patch * channels") for file, node, text in token_sizes(package)
    )
    reported: set[tuple[ClassModel, str]] = set()
    lost: list[tuple[str, Submodule]] = []
    wanted = {folded(target) for target in keys.kept.values()}
    for name, built, owner in parameters:
        numbered = any(part.isdigit() for part in name.split("."))
        there = any(_covers(target, name) for target in targets) if numbered else folded(name) in filled
        if there or (owner, built.name) in reported:
            continue
        reported.add((owner, built.name))
        if folded(name) in wanted:
            lost.append((name, built))
        else:
            yield Hit(built.file, built.node, f"no key of the checkpoint becomes the parameter {name!r}")
    # The checkpoint has keys for these: the table takes them elsewhere. A row that fits no key is dead-rename-rule's.
    if len(lost) > 1 and any(_is_dead(row, keys) for table in tables for row in table.rows):
        return
    for name, built in lost[:1]:
        others = f" and {len(lost) - 1} others" if len(lost) > 1 else ""
        yield Hit(built.file, built.node, f"no key of the checkpoint becomes the parameter {name!r}{others}")


def _is_dead(row: Rename, keys: RecordedKeys) -> bool:
    source = folded(row.source)
    names = (folded(key) for key in (*keys.kept, *keys.dropped))
    return not any(name.startswith(source) or source.startswith(name) for name in names)


def _covers(pattern: str, name: str) -> bool:
    """Whether a folded name, ``mlp.{0,2}.weight`` or ``layers.{0..27}.up.weight``, stands for another one."""
    wanted = name.split(".")
    parts = _RANGE.sub(lambda found: found[0].replace("..", "-"), pattern).split(".")
    if len(parts) != len(wanted):
        return False
    for part, one in zip(parts, wanted, strict=True):
        if part == one or one == INDEX:
            continue
        ends = [piece.split("-") for piece in part[1:-1].split(",")] if part.startswith("{") else []
        if not is_index(one) or not any(int(end[0]) <= int(one) <= int(end[-1]) for end in ends if is_index(end[-1])):
            return False
    return True


SPEC = recorded_spec()
_HEAD = "self.llm2vae = nn.Linear(config.hidden_size, config.latent_dim)"
_BUFFER = '        self.register_buffer("rates", torch.ones(4){})\n'
_TOKENS = """
[latents]
patch = 2
channels = 16
layout = "(h w) (p q c) -> c (h p) (w q)"

[architecture]
input_projection = "vae2llm"
"""
_SIZED = [
    (
        "    latent_dim: int = 16\n",
        "    latent_dim: int = 16\n    patch: int = 2\n    channels: int = 16\n",
    ),
    ("self.vae2llm = nn.Linear(config.latent_dim,", "self.vae2llm = nn.Linear(config.token_dim,"),
]
_PROPERTY = "    @property\n    def head_dim("
_TOKEN = "    @property\n    def token_dim(self) -> int:\n        return {}\n\n"
FAILING = (
    Example(
        "a token of another size",
        {
            "spec": SPEC + _TOKENS,
            "model": [*_SIZED, (_PROPERTY, _TOKEN.format("«self.patch * self.channels»") + _PROPERTY)],
        },
    ),
    Example(
        "a buffer that is saved",
        {
            "spec": SPEC,
            "model": [
                (
                    f"        {_HEAD}\n",
                    f"        {_HEAD}\n" + _BUFFER.format("").replace("self", "«self").replace(")\n", ")»\n"),
                ),
            ],
        },
    ),
    Example(
        "a module under another name",
        {
            "spec": SPEC,
            "model": [
                (_HEAD, "«self.proj_out» = nn.Linear(config.hidden_size, config.latent_dim)"),
                ("(self.llm2vae(self.norm", "(self.proj_out(self.norm"),
            ],
        },
        also=("OSC408",),
    ),
    Example(
        "a bias that the checkpoint does not have",
        {
            "spec": SPEC,
            "model": [
                (
                    "        self.o_proj = nn.Linear(hidden, hidden, bias=False)",
                    "        «self.o_proj» = nn.Linear(hidden, hidden)",
                )
            ],
        },
    ),
    Example(
        "a parameter of its own",
        {
            "spec": SPEC,
            "model": [
                (_HEAD, _HEAD + "\n        «self.scale» = nn.Parameter(torch.ones(1))"),
                ("(self.llm2vae(self.norm(latents)),)", "(self.scale * self.llm2vae(self.norm(latents)),)"),
            ],
        },
    ),
    Example(
        "a parameter's key is ignored",
        {
            "spec": SPEC,
            "model": [
                (
                    '(("language_model.lm_head.", "predicts text"),)',
                    '(("language_model.lm_head.", "predicts text"), («"language_model.model.norm."», "no text"))',
                ),
            ],
        },
    ),
    Example(
        "an element more than the checkpoint has",
        {
            "spec": SPEC,
            "model": [
                (
                    "        self.mlp = nn.Sequential(nn.Linear(1, hidden_size), nn.SiLU(), nn.Linear(hidden_size, hidden_size))",
                    "        «self.mlp» = nn.Sequential(\n"
                    "            nn.Linear(1, hidden_size), nn.SiLU(), nn.Linear(hidden_size, hidden_size), nn.Linear(1, 1)\n"
                    "        )",
                )
            ],
        },
    ),
    Example(
        "a row that leads elsewhere",
        {
            "spec": SPEC,
            "model": [
                ('("vae2llm.", "vae2llm.")', '("vae2llm.", "vae_proj.")'),
                ("self.vae2llm = nn.Linear", "«self.vae2llm» = nn.Linear"),
            ],
        },
        also=("OSC408",),
    ),
)
PASSING = (
    Example(
        "a part that is not always there",
        {
            "spec": SPEC,
            "model": [
                (_HEAD, f"{_HEAD} if config.latent_dim else nn.Identity()"),
                (
                    "        self.latent_pos_embed = nn",
                    "        if config.vocab_size > 1000:\n            self.extra = nn.Linear(8, 8)\n"
                    "        self.latent_pos_embed = nn",
                ),
                (
                    "return (self.llm2vae(self.norm(latents)),)",
                    "if self.config.vocab_size > 1000:\n            latents = latents + self.extra(latents)\n"
                    "        return (self.llm2vae(self.norm(latents)),)",
                ),
            ],
        },
    ),
    Example(
        "what the loading code fills itself",
        {
            "spec": SPEC,
            "model": [
                (f"        {_HEAD}\n", f"        {_HEAD}\n" + _BUFFER.format("")),
                (
                    "        self.vae2llm = nn",
                    "        self.gate = nn.Parameter(torch.ones(1))\n        self.vae2llm = nn",
                ),
                (
                    "return (self.llm2vae(self.norm(latents)),)",
                    "return (self.llm2vae(self.norm(latents * self.gate)),)",
                ),
                (
                    "        model.load_state_dict(state, strict=True",
                    '        state["rates"] = torch.ones(4)\n        state.update(gate=torch.ones(1))\n'
                    "        model.load_state_dict(state, strict=True",
                ),
            ],
        },
    ),
    Example(
        "a token of the checkpoint's size",
        {
            "spec": SPEC + _TOKENS,
            "model": [*_SIZED, (_PROPERTY, _TOKEN.format("self.patch * self.patch * self.channels") + _PROPERTY)],
        },
    ),
    Example(
        "a buffer that is not saved",
        {"spec": SPEC, "model": [(f"        {_HEAD}\n", f"        {_HEAD}\n" + _BUFFER.format(", persistent=False"))]},
    ),
    Example("every parameter is filled", {"spec": SPEC}),
    Example("nothing is known of the checkpoint"),
    Example(
        "a buffer",
        {
            "spec": SPEC,
            "model": [
                (_HEAD, _HEAD + '\n        self.register_buffer("scale", torch.ones(1), persistent=False)'),
                ("(self.llm2vae(self.norm(latents)),)", "(self.scale * self.llm2vae(self.norm(latents)),)"),
            ],
        },
    ),
)
