"""A stream of tokens goes through the other stream's weights.

A layer with two sets of weights keeps one for text and a twin for what is generated. One call that takes the other
set runs, fits in shape, and computes something else than the rollout; with LoRA on the twin only, that projection is
not trained.

    q = cat(self.q_proj(text), self.q_proj(latents))         # k and v use k_proj_gen, v_proj_gen

Instead: give every stream its own weights, in every projection, norm and feed-forward block.
"""

from __future__ import annotations

import ast
from collections import Counter

from scaffold.check.example import Example
from scaffold.check.model.attention_roles import exchanged_norms, exchanged_roles, joined_otherwise
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.streams import reads, root_name, self_call
from scaffold.check.model.submodules import submodules
from scaffold.check.model.twins import twin_suffix, twin_uses
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC127"
NAME = "twin-weights-crossed"
SEVERITY = "error"
CHECKLIST = ("M8", "pitfall 23")
APPLIES = Applies(non_diffusers=True)
HELP = "give the stream its own weights"


def check(package: Package) -> Hits:
    """In classes with twins, look which stream each twin is applied to, and for the one call that differs."""
    for function in package.forward_functions:
        if function.cls is None or function.file not in package.files or function.name == "__init__":
            continue
        for where, text in (*exchanged_roles(function), *exchanged_norms(function)):
            yield Hit(function.file, where, text, "give queries, keys and values their own weights")
        suffix = twin_suffix(function.cls)
        if suffix is not None:
            yield from _crossed(function, suffix)
            yield from (Hit(function.file, where, text) for where, text in joined_otherwise(function))


def _crossed(function: FunctionModel, suffix: str) -> Hits:
    names = {part.name for part in submodules(function.cls)} if function.cls is not None else set()
    uses = list(twin_uses(function, names, suffix))
    sources = _sources(function, names, suffix)
    told: set[ast.Call] = set()
    for _, twin, call in uses:
        before = _kinds(call.args[0], names, suffix, sources)
        if before == {not twin}:
            came = f"weights {'without' if twin else 'with'} {suffix!r}"
            told.add(call)
            yield Hit(function.file, call.func, f"what comes out of {came} goes through {self_call(call)}")
    votes: dict[str, Counter[bool]] = {}
    for stream, twin, _ in uses:
        votes.setdefault(stream, Counter())[twin] += 1
    for stream, twin, call in uses:
        mine, others = votes[stream][twin], votes[stream][not twin]
        if call not in told and mine < others and mine * 3 <= others + 1:
            usual = f"weights {'without' if twin else 'with'} {suffix!r}"
            text = f"{stream!r} goes through {self_call(call)}, {others} other calls give it {usual}"
            yield Hit(function.file, call.func, text)


def _sources(function: FunctionModel, names: set[str], suffix: str) -> dict[str, set[bool]]:
    """Return for each local name which weights its values came out of: twins (True) or those without the ending."""
    found: dict[str, set[bool]] = {}
    # `x = norm(x)` keeps the stream that x was of before.
    pairs = [(name, value) for name, value in function.assignments if not reads(value, {name})]
    for _ in range(3):
        for name, value in pairs:
            found.setdefault(name, set()).update(_kinds(value, names, suffix, found))
    return found


def _kinds(value: ast.expr, names: set[str], suffix: str, sources: dict[str, set[bool]]) -> set[bool]:
    """Return which weights an expression came out of last: of the call that it begins with, else of its name."""
    node = value
    for _ in range(50):
        if isinstance(node, ast.Call):
            of_self = self_call(node)
            if of_self is not None:
                twin = of_self.endswith(suffix) and of_self[: -len(suffix)] in names
                return {twin} if twin or of_self + suffix in names else {True, False}
            if isinstance(node.func, ast.Attribute) and root_name(node.func) not in ("torch", "F", "nn", None):
                node = node.func.value
            elif node.args:
                node = node.args[0]
            else:
                return set()
        elif isinstance(node, (ast.Subscript, ast.Attribute)):
            node = node.value
        elif isinstance(node, ast.Name):
            return sources.get(node.id, set())
        else:
            return {True, False} if isinstance(node, (ast.Tuple, ast.List)) else set()
    return set()


FAILING: tuple[Example, ...] = (
    Example(
        "the twin's stream through the plain weights",
        {
            "model": [
                (
                    "k = torch.cat((self.k_proj(context), self.k_proj_gen(latents)), dim=1)",
                    "k = torch.cat((self.k_proj(context), «self.k_proj»(latents)), dim=1)",
                ),
            ]
        },
        also=("OSC121",),
    ),
    Example(
        "the plain stream through the twin",
        {
            "model": [
                ("v = torch.cat((self.v_proj(context), self", "v = torch.cat((«self.v_proj_gen»(context), self"),
            ]
        },
        also=("OSC121",),
    ),
    Example(
        "exchanged in one place",
        {
            "model": [
                (
                    "q = torch.cat((self.q_proj(context), self.q_proj_gen(latents)), dim=1)",
                    "q = torch.cat((«self.q_proj_gen»(context), «self.q_proj»(latents)), dim=1)",
                ),
            ]
        },
    ),
)
_NORMED = "        v = torch.cat((self.v_proj(context), self.v_proj_gen(latents)), dim=1)\n"
_NORMS = (
    "        self.o_proj_gen = nn.Linear(hidden, hidden, bias=False)\n",
    "        self.o_proj_gen = nn.Linear(hidden, hidden, bias=False)\n"
    "        self.v_norm = RMSNorm(hidden)\n        self.v_norm_gen = RMSNorm(hidden)\n",
)
FAILING += (
    Example(
        "norms exchanged behind the projections",
        {
            "model": [
                _NORMS,
                (
                    _NORMED,
                    "        v_text = self.v_proj(context)\n        v_image = self.v_proj_gen(latents)\n"
                    "        v_text = «self.v_norm_gen»(v_text.float()).to(q.dtype)\n"
                    "        v_image = «self.v_norm»(v_image)\n"
                    "        v = torch.cat((v_text, v_image), dim=1)\n",
                ),
            ]
        },
    ),
)
_KEYS = "        k = torch.cat((self.k_proj(context), self.k_proj_gen(latents)), dim=1)\n"
_SPLIT = (
    "        k_text = {}(context)\n        v_text = {}(context)\n"
    "        k = torch.cat((k_text, self.k_proj_gen(latents)), dim=1)\n"
    "        v = torch.cat((v_text, self.v_proj_gen(latents)), dim=1)\n"
)
_QK_NORMS = (
    "        self.o_proj_gen = nn.Linear(hidden, hidden, bias=False)\n",
    "        self.o_proj_gen = nn.Linear(hidden, hidden, bias=False)\n"
    "        self.q_norm = RMSNorm(hidden)\n        self.k_norm = RMSNorm(hidden)\n",
)
_QUERIES = "        q = torch.cat((self.q_proj(context), self.q_proj_gen(latents)), dim=1)\n"
_NORMED_BOTH = (
    "        q_all = {}(self.q_proj(context))\n        k_all = self.k_proj(context)\n        k_all = {}(k_all.float())\n"
    "        q = torch.cat((q_all, self.q_proj_gen(latents)), dim=1)\n"
    "        k = torch.cat((k_all, self.k_proj_gen(latents)), dim=1)\n"
)
FAILING += (
    Example(
        "keys and values projected by each other's weights",
        {"model": [(_KEYS + _NORMED, _SPLIT.format("«self.v_proj»", "«self.k_proj»"))]},
    ),
    Example(
        "queries and keys through each other's norm",
        {"model": [_QK_NORMS, (_QUERIES + _KEYS, _NORMED_BOTH.format("«self.k_norm»", "«self.q_norm»"))]},
    ),
    Example(
        "the norm behind attention in front of it",
        {
            "model": [
                (
                    "        self.input_layernorm = RMSNorm(config.hidden_size)\n",
                    "        self.input_layernorm = RMSNorm(config.hidden_size)\n"
                    "        self.post_attention_layernorm = RMSNorm(config.hidden_size)\n",
                ),
                (
                    "            self.input_layernorm(context), self",
                    "            «self.post_attention_layernorm»(context), self",
                ),
                (
                    "return context + self.mlp(context), lat",
                    "return context + self.mlp(self.input_layernorm(context)), lat",
                ),
            ]
        },
    ),
    Example(
        "joined in another order",
        {
            "model": [
                (
                    _KEYS + _NORMED,
                    "        k_text, k_image = self.k_proj(context), self.k_proj_gen(latents)\n"
                    "        v_text, v_image = self.v_proj(context), self.v_proj_gen(latents)\n"
                    "        k = torch.cat((k_text, k_image), dim=1)\n"
                    "        v = «torch.cat((v_image, v_text), dim=1)»\n",
                )
            ]
        },
    ),
)
_OWN_NORMS = (
    "        self.o_proj_gen = nn.Linear(hidden, hidden, bias=False)\n",
    "        self.o_proj_gen = nn.Linear(hidden, hidden, bias=False)\n"
    + "".join(
        f"        self.{name}_norm = RMSNorm(hidden)\n" for name in ("q_proj", "k_proj", "q_proj_gen", "k_proj_gen")
    ),
)
_NORMED_EACH = (
    "        q_text = self.q_proj_norm(self.q_proj(context))\n        k_text = self.k_proj_norm(self.k_proj(context))\n"
    "        q_image = self.q_proj_gen_norm(self.q_proj_gen(latents))\n"
    "        k_image = self.k_proj_gen_norm(self.k_proj_gen(latents))\n"
    "        q = torch.cat((q_text, q_image), dim=1)\n        k = torch.cat((k_text, k_image), dim=1)\n"
)
_LISTED = (
    "        q_image, k_image, v_image = (one(latents) for one in (self.q_proj_gen, {}, {}))\n"
    "        k = torch.cat((self.k_proj(context), k_image), dim=1)\n"
    "        v = torch.cat((self.v_proj(context), v_image), dim=1)\n"
)
FAILING += (
    Example(
        "listed in another order",
        {"model": [(_KEYS + _NORMED, _LISTED.format("«self.v_proj_gen»", "«self.k_proj_gen»"))]},
    ),
)
PASSING = (
    Example(
        "listed in the order of the names",
        {"model": [(_KEYS + _NORMED, _LISTED.format("self.k_proj_gen", "self.v_proj_gen"))]},
    ),
    Example("a norm that is named after its projection", {"model": [_OWN_NORMS, (_QUERIES + _KEYS, _NORMED_EACH)]}),
    Example(
        "queries, keys and values by their own",
        {"model": [(_KEYS + _NORMED, _SPLIT.format("self.k_proj", "self.v_proj"))]},
    ),
    Example(
        "queries and keys through their own norms",
        {"model": [_QK_NORMS, (_QUERIES + _KEYS, _NORMED_BOTH.format("self.q_norm", "self.k_norm"))]},
    ),
    Example(
        "norms behind the projections",
        {
            "model": [
                _NORMS,
                (
                    _NORMED,
                    "        v_text = self.v_norm(self.v_proj(context))\n"
                    "        v_image = self.v_norm_gen(self.v_proj_gen(latents))\n"
                    "        v = torch.cat((v_text, v_image), dim=1)\n",
                ),
            ]
        },
    ),
    Example(
        "a second attention behind the norm of the first",
        {
            "model": [
                (
                    "        self.input_layernorm = RMSNorm(config.hidden_size)\n",
                    "        self.input_layernorm = RMSNorm(config.hidden_size)\n"
                    "        self.post_attention_norm = RMSNorm(config.hidden_size)\n"
                    "        self.cross_attn = ToyMLP(config)\n",
                ),
                (
                    "        return context + self.mlp(context), lat",
                    "        context = context + self.cross_attn(self.post_attention_norm(context))\n"
                    "        return context + self.mlp(context), lat",
                ),
            ]
        },
    ),
    Example("every stream has its own"),
    Example(
        "one set of weights for both",
        {
            "model": [
                (
                    "self.input_layernorm(context), self.input_layernorm_gen(latents)",
                    "self.input_layernorm(context), self.input_layernorm_gen(latents * 1)",
                )
            ]
        },
    ),
)
