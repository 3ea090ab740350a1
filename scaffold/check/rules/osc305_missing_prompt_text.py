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

from scaffold.check.example import Example
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.reach import reachable
from scaffold.check.model.sides import side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC305"
NAME = "missing-prompt-text"
SEVERITY = "error"
CHECKLIST = ("R5",)
APPLIES = Applies(non_diffusers=True)
HELP = 'read prompt_token_ids in forward(), and put their text into prompt["prompt"] before the pipeline runs'
_PROMPT = {"prompt", "prompts", "prompt_embeds", "prompt_ids", "input_ids", "text"}


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
        if not any(_reads_ids(function) for function in functions):
            yield Hit(forward.file, forward.node, f"{adapter.name}.forward() never reads the prompt's token ids")
        elif not any(_hands_on(function) for function in functions):
            yield Hit(
                forward.file,
                forward.node,
                f"{adapter.name}.forward() reads the prompt's token ids, and the pipeline gets nothing of them",
            )


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
    index = function.file.index
    for target in index.nodes(ast.Subscript, function.node):
        if isinstance(target.ctx, ast.Store) and function.file.value(target.slice) in _PROMPT:
            return True
    for attribute in index.nodes(ast.Attribute, function.node):
        if isinstance(attribute.ctx, ast.Store) and attribute.attr in _PROMPT:
            return True
    for call in function.calls:
        if any(item.arg in _PROMPT for item in call.keywords):
            return True
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("encode_prompt", "text_encoder", "setdefault"):
            return True
    return any(
        isinstance(key, ast.Constant) and key.value in _PROMPT
        for table in index.nodes(ast.Dict, function.node)
        for key in table.keys
    )


_CALL = "        self._ensure_prompt_text(req)\n"
_FORWARD = ("    def forward(self, req", "    def «forward»(self, req")
_PUT = '            prompt["prompt"] = self._decode_prompt(prompt["prompt_token_ids"])\n'
FAILING = (
    Example("the helper is not called", {"rollout": [(_CALL, ""), _FORWARD]}),
    Example(
        "decoded and dropped",
        {"rollout": [(_PUT, '            self._decode_prompt(prompt["prompt_token_ids"])\n'), _FORWARD]},
    ),
)
PASSING = (
    Example("the text is put into the request"),
    Example(
        "in forward itself",
        {
            "rollout": [
                (
                    _CALL,
                    "        prompt = req.prompts[0]\n"
                    '        prompt["prompt"] = self._decode_prompt(prompt["prompt_token_ids"])\n',
                )
            ]
        },
    ),
    Example("of diffusers", base="diffusers"),
)
