"""The rollout asks a request for something that no request carries.

Requests are dictionaries. A key that is close to the right one raises nothing: ``get`` answers None, and the pipeline
samples from an empty prompt, without noise, or without a window, for every request.

    if prompt.get("prompt_ids") is not None:                 # the agent loop sends prompt_token_ids

Instead: read ``prompt_token_ids`` (``prompt_ids`` where the checkout sends that, since v0.3.0) and
``negative_prompt_ids`` of the prompt, and ``noise_level``, ``sde_type``,
``sde_window_size``, ``sde_window_range``, ``global_steps`` and ``logprobs`` of the sampling parameters' ``extra_args``.
"""

from __future__ import annotations

import ast
from difflib import SequenceMatcher
from functools import lru_cache

from scaffold.check.example import Example
from scaffold.check.model.package import Package
from scaffold.check.model.project import Project
from scaffold.check.model.python import FunctionModel, PythonFile
from scaffold.check.model.sides import side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC323"
NAME = "unknown-request-key"
SEVERITY = "error"
CHECKLIST = ("R5", "pitfall 28")
APPLIES = Applies(objective="policy_gradient")
KEYS = (
    *("prompt_token_ids", "negative_prompt_ids", "multi_modal_data", "noise_level", "sde_type", "sde_window_size"),
    *("sde_window_range", "logprobs", "negative_prompt", "global_steps"),
)
_IDS = ("prompt_token_ids", "prompt_ids")  # until v0.2.0, and later
_READING = {"get", "pop", "setdefault"}
_ALIKE = 0.8
_SERVERS = "verl_omni/workers/rollout"
_REQUESTS = "verl_omni/pipelines/rollout_request.py"  # where v0.3.0 and later build them


def check(package: Package) -> Hits:
    """Look for keys close to those of a request, where the right key is read nowhere."""
    if not any(package.mentions(word) for word in ("req", "prompts", "extra_args")):
        return
    side = side_of(package, "rollout")
    reads = [(f, node, key) for f in side.functions if f.file in package.files for node, key in _read(f)]
    sent = _sent_keys(package.project)
    if _IDS[1] in sent and _IDS[0] not in sent and not package.mentions("prompt_ids_from_payload"):
        named = {n.value for f in side.functions for n in f.file.index.nodes(ast.Constant, f.node)}
        for function, node, key in reads if _IDS[1] not in named else ():
            if key == _IDS[0]:
                text = f"requests of this checkout carry {_IDS[1]!r}, none carries {key!r}"
                yield Hit(function.file, node, text, f"read {_IDS[1]!r} where it is there")
    near = {key: [right for right in KEYS if _near(key, right)] for key in {key for _, _, key in reads} - {*KEYS}}
    strange = [(function, node, key) for function, node, key in reads if near.get(key)]
    written = {n.value for f in side.functions for n in f.file.index.nodes(ast.Constant, f.node)} if strange else set()
    for function, node, key in strange:
        meant = max(near[key], key=lambda right: SequenceMatcher(None, key, right).ratio())
        if meant not in written and not _made_here(package, key, node) and key not in sent:
            yield Hit(function.file, node, f"no request carries {key!r}", f"read {meant!r}")


def _read(function: FunctionModel) -> list[tuple[ast.expr, str]]:
    """Return the keys that a function reads of dictionaries, with the expressions that name them."""
    index, found = function.file.index, []
    for call in function.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr in _READING and call.args:
            found.append(call.args[0])
        elif isinstance(call.func, ast.Name) and call.func.id == "getattr" and len(call.args) > 1:
            found.append(call.args[1])
    found += [n.slice for n in index.nodes(ast.Subscript, function.node) if isinstance(n.ctx, ast.Load)]
    found += [
        node.left
        for node in index.nodes(ast.Compare, function.node)
        if isinstance(node.ops[0], (ast.In, ast.NotIn)) and len(node.ops) == 1
    ]
    texts = [node for node in found if isinstance(node, (ast.Constant, ast.Name, ast.Attribute))]
    pairs = [(node, node.value if isinstance(node, ast.Constant) else function.file.value(node)) for node in texts]
    return [(node, key) for node, key in pairs if isinstance(key, str) and key.isidentifier()]


def _made_here(package: Package, key: str, read: ast.expr) -> bool:
    """Whether a key is written somewhere in the package: it is the package's own then."""
    for file in package.files:
        for node in file.index.nodes(ast.Constant):
            if node.value != key or node is read:
                continue
            parent = file.index.parent(node)
            if isinstance(parent, ast.Dict) or (
                isinstance(parent, ast.Subscript) and isinstance(parent.ctx, ast.Store)
            ):
                return True
    return False


def _near(key: str, right: str) -> bool:
    """Whether a key may stand for another one: most of its words, or nearly its letters."""
    mine, wanted = set(key.split("_")), set(right.split("_"))
    if len(mine & wanted) >= 2 and (mine < wanted or wanted < mine):
        return True
    # Two names that are alike share the beginning of a word, and are about as long.
    alike = abs(len(key) - len(right)) <= 4 and any(a[:3] == b[:3] for a in mine for b in wanted)
    return alike and SequenceMatcher(None, key, right).ratio() >= _ALIKE


_NEW = {"verl_omni/pipelines/rollout_request.py": 'def sent(ids):\n    return {"prompt_ids": ids}\n'}
_READ = '["prompt"] = self._decode_prompt(prompt["prompt_token_ids"])'


@lru_cache(maxsize=8)
def _sent_keys(project: Project) -> frozenset[str]:
    """Return the keys of the dictionaries that the rollout's server builds; empty where it is not in the tree."""
    found = set()
    for file in (*_files(project, _SERVERS), *_files(project, _REQUESTS)):
        for table in file.index.nodes(ast.Dict):
            found |= {key.value for key in table.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
        for part in file.index.nodes(ast.Subscript):
            key = part.slice
            if isinstance(part.ctx, ast.Store) and isinstance(key, ast.Constant) and isinstance(key.value, str):
                found.add(key.value)
    return frozenset(found)


def _files(project: Project, folder: str) -> list[PythonFile]:
    paths = [folder] if folder.endswith(".py") else project.files(folder, ".py")
    return [file for path in paths if (file := project.python(path)) is not None]


FAILING = (
    Example(
        "the key of earlier releases",
        _NEW,
        rollout=[
            ('prompt.get("prompt_token_ids")', 'prompt.get(«"prompt_token_ids"»)'),
            (_READ, _READ.replace('prompt["prompt_token_ids"]', 'prompt[«"prompt_token_ids"»]')),
        ],
    ),
    Example("the size of the window", rollout=('"sde_window_size"', '«"window_size"»'), also="OSC306"),
    Example("the training step", rollout=('"global_steps"', '«"global_step"»')),
)
PASSING = (
    Example(
        "the key of this checkout",
        _NEW,
        rollout=[
            ('prompt.get("prompt_token_ids")', 'prompt.get("prompt_ids")'),
            (_READ, _READ.replace('prompt["prompt_token_ids"]', 'prompt["prompt_ids"]')),
        ],
    ),
    Example(
        "another spelling beside the right one",
        rollout=('prompt_token_ids"])\n', 'prompt_token_ids"])\n        prompt.get("prompt_ids")\n'),
    ),
)
