"""The rollout never looks at the token ids that the agent loop sends.

The agent loop sends ``prompt_token_ids`` and no text. An upstream pipeline that reads ``prompt`` samples from an empty
one without a word, for every request: the images have nothing to do with the prompts, and rewards stay where noise
puts them.

    def forward(self, req):
        return super().forward(req)              # req.prompts[0] has prompt_token_ids only

Instead: before the pipeline runs, put the text of the ids into ``prompt["prompt"]``, or hand the ids on.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.example import Example
from scaffold.check.model.calls import resolve
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.dataflow import reaching
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.pyfile import PythonFile
from scaffold.check.model.reach import reachable
from scaffold.check.model.sides import side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC305"
NAME = "missing-prompt-text"
SEVERITY = "error"
CHECKLIST = ("R5",)
APPLIES = Applies(non_diffusers=True)
HELP = 'read prompt_token_ids in forward(), and put their text into prompt["prompt"] before the pipeline runs'
_PROMPT = {"prompt", "prompts", "prompt_embeds", "prompt_ids", "input_ids"}
_RUNNING = ("forward", "__call__", "generate")


def check(package: Package) -> Hits:
    """Look at what ``forward`` gets to before the upstream pipeline takes over."""
    side = side_of(package, "rollout")
    for adapter in side.adapters:
        forward = adapter.method("forward")
        if forward is None or forward not in side or adapter.file not in package.files:
            continue
        reached = [function for function in reachable(forward, adapter) if function in side]
        # Hooks that the upstream pipeline calls: what overrides something of it.
        hooks = [
            m for cls in adapter.mro for m in cls.methods.values() if m.name in ("encode_prompt", "prepare_encode")
        ]
        functions = [*reached, *hooks]
        for function in functions:
            yield from _wrong_text(function)
        if not any(_reads_ids(function) for function in functions):
            yield Hit(forward.file, forward.node, f"{adapter.name}.forward() never reads the prompt's token ids")
        elif not any(_hands_on(function) for function in functions):
            yield Hit(
                forward.file,
                forward.node,
                f"{adapter.name}.forward() reads the prompt's token ids, and the pipeline gets nothing of them",
            )
        elif not hooks and (run := _pipeline_runs(forward)) is not None and _too_late(forward, adapter, run):
            yield Hit(forward.file, run, f"{adapter.name}.forward() runs the pipeline before it gets the prompt's text")


def _wrong_text(function: FunctionModel) -> Hits:
    """Look at what is put under ``prompt``, and at the condition under which it is."""
    index = function.file.index
    for target in index.nodes(ast.Subscript, function.node):
        statement = index.parent(target)
        if not isinstance(target.ctx, ast.Store) or function.file.value(target.slice) != "prompt":
            continue
        if not isinstance(statement, ast.Assign):
            continue
        words = [n.value for n in index.nodes(ast.Constant, statement.value) if isinstance(n.value, str)]
        if any("negative" in word for word in words) and not any(word == "prompt_token_ids" for word in words):
            yield Hit(
                function.file, statement.value, "the text of the negative prompt is put in the place of the prompt's"
            )
        for outer in index.ancestors(target):
            if outer is function.node:
                break
            if isinstance(outer, ast.If) and any(index.contains(part, target) for part in outer.body):
                parts = outer.test.values if isinstance(outer.test, ast.BoolOp) else [outer.test]
                joined = not (isinstance(outer.test, ast.BoolOp) and isinstance(outer.test.op, ast.Or))
                for part in parts if joined else ():
                    if ast.unparse(part) in (f"{ast.unparse(target.value)}.get('prompt')", ast.unparse(target)):
                        yield Hit(function.file, part, "the text is only made where the request brings one already")


def _pipeline_runs(forward: FunctionModel) -> ast.Call | None:
    """Return the only call of the upstream pipeline's own method."""
    found = [
        call
        for call in forward.calls
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in _RUNNING
        and isinstance(call.func.value, ast.Call)
        and isinstance(call.func.value.func, ast.Name)
        and call.func.value.func.id == "super"
    ]
    return found[0] if len(found) == 1 else None


def _too_late(forward: FunctionModel, adapter: ClassModel, run: ast.Call) -> bool:
    """Whether everything that hands the prompt on stands behind the run."""
    handing = list(_handing(forward))
    for call in forward.calls:
        called = resolve(forward.file, call, adapter)
        if isinstance(called, FunctionModel) and any(_hands_on(function) for function in reachable(called, adapter)):
            handing.append(call)
    around = list(forward.file.index.ancestors(run))
    looped = any(isinstance(outer, (ast.For, ast.While, ast.Lambda, ast.FunctionDef)) for outer in around[:-1])
    looped = looped and not all(outer is forward.node for outer in around if isinstance(outer, ast.FunctionDef))
    behind = [
        node for node in handing if (node.lineno, node.col_offset) > (run.end_lineno or 0, run.end_col_offset or 0)
    ]
    return bool(handing) and not looped and len(behind) == len(handing)


def _reads_ids(function: FunctionModel) -> bool:
    index = function.file.index
    texts = [node.value for node in index.nodes(ast.Constant, function.node) if isinstance(node.value, str)]
    names = [node.attr for node in index.nodes(ast.Attribute, function.node)]
    return any(_of_ids(word) for word in (*texts, *names))


def _of_ids(word: str) -> bool:
    # Not the sentences of docstrings.
    return len(word) < 40 and "prompt" in word and "ids" in word.lower() and " " not in word


def _hands_on(function: FunctionModel) -> bool:
    """Whether something is put into the request, or given to a call as the prompt."""
    return next(_handing(function), None) is not None


def _handing(function: FunctionModel) -> Iterator[ast.expr]:
    index = function.file.index
    for target in index.nodes(ast.Subscript, function.node):
        if isinstance(target.ctx, ast.Store) and function.file.value(target.slice) in _PROMPT:
            if not (isinstance(target.value, ast.Name) and _dropped_copy(function, target.value)):
                yield target
    for attribute in index.nodes(ast.Attribute, function.node):
        if isinstance(attribute.ctx, ast.Store) and attribute.attr in _PROMPT:
            yield attribute
    for call in function.calls:
        if any(item.arg in _PROMPT for item in call.keywords) or (
            isinstance(call.func, ast.Attribute) and call.func.attr in ("encode_prompt", "text_encoder")
        ):
            yield call
        elif isinstance(call.func, ast.Attribute) and call.func.attr == "setdefault" and call.args:
            if function.file.value(call.args[0]) in _PROMPT:
                yield call
    for table in index.nodes(ast.Dict, function.node):
        for key in table.keys:
            if isinstance(key, ast.Constant) and key.value in _PROMPT:
                yield key


def _dropped_copy(function: FunctionModel, name: ast.Name) -> bool:
    """Whether a name holds a copy that goes nowhere: it is read and written by keys only."""
    file = function.file
    bindings = reaching(function, name)
    if not bindings or not all(binding.value is not None and _copies(file, binding.value) for binding in bindings):
        return False
    first = min(getattr(binding.node, "lineno", 0) for binding in bindings)
    for node in file.index.nodes(ast.Name, function.node):
        if node.id != name.id or not isinstance(node.ctx, ast.Load) or node.lineno <= first:
            continue
        parent = file.index.parent(node)
        keyed = isinstance(parent, ast.Subscript) and parent.value is node
        method = isinstance(parent, ast.Attribute) and parent.attr in ("get", "pop", "keys", "setdefault", "update")
        asked = isinstance(parent, ast.Compare) and node in parent.comparators
        if not (keyed or method or asked):
            return False
    return True


def _copies(file: PythonFile, value: ast.expr) -> bool:
    if isinstance(value, ast.Dict):
        return None in value.keys
    if not isinstance(value, ast.Call):
        return False
    if file.qualified(value.func) in ("dict", "copy.copy", "copy.deepcopy"):
        return len(value.args) == 1
    return isinstance(value.func, ast.Attribute) and value.func.attr in ("copy", "deepcopy")


FAILING = (
    Example("only where there is a text", rollout=('not prompt.get("prompt")', '«prompt.get("prompt")»')),
    Example(
        "of the negative prompt",
        rollout=(
            'self._decode_prompt(prompt["prompt_token_ids"])',
            '«self._decode_prompt(prompt["negative_prompt_ids"])»',
        ),
    ),
    Example(
        "the helper is not called",
        rollout=(
            ("forward(self, req: DiffusionRequestBatch) -> DiffusionOutput:\n        self._ensure_prompt_text(req)"),
            "«forward»(self, req: DiffusionRequestBatch) -> DiffusionOutput:",
        ),
    ),
)
PASSING = (
    Example(
        "put into it by setdefault",
        rollout=(
            '["prompt"] = self._decode_prompt(prompt["prompt_token_ids"]',
            '.setdefault("prompt", self._decode_prompt(prompt["prompt_token_ids"])',
        ),
    ),
    Example(
        "in forward itself",
        rollout=(
            "self._ensure_prompt_text(req",
            ('prompt = req.prompts[0]\n        prompt["prompt"] = self._decode_prompt(prompt["prompt_token_ids"]'),
        ),
    ),
)
