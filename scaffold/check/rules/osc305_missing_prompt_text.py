"""The rollout never looks at the token ids that the agent loop sends.

The agent loop sends ``prompt_token_ids`` and no text. An upstream pipeline that reads ``prompt`` samples from an empty
one without a word, for every request: the images have nothing to do with the prompts, and rewards stay where noise
puts them.

    def forward(self, req):
        return super().forward(req)              # req.prompts[0] has prompt_token_ids only

Instead: before the pipeline runs, put the text of the ids into ``prompt["prompt"]``, or hand the ids on. What other
stages made of the prompt beforehand may be put into the request whole, ``prompt.update(…)``.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.package import STEPS, Package
from scaffold.check.model.pinned_upstream import upstream_of
from scaffold.check.model.python import ClassModel, FunctionModel
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


def check(package: Package) -> Hits:
    """Look at what ``forward`` reaches before the upstream pipeline takes over."""
    side = side_of(package, "rollout")
    for adapter in side.adapters:
        forward = adapter.method("forward")
        if forward is None or forward not in side or adapter.file not in package.files:
            continue
        # In the engine's step execution forward() is the warm-up; upstream's prepare_encode() takes the prompt.
        if any(adapter.method(name) is not None for name in STEPS):
            continue
        functions = [function for function in reachable(forward, adapter) if function in side]
        others = [m for cls in adapter.mro for m in cls.methods.values() if m not in functions]
        functions += [m for m in others if m.name in ("encode_prompt", "prepare_encode")]
        if any(_puts_in_whole(function) for function in functions):
            continue
        if not any(_reads_ids(function) for function in functions):
            if _pipeline_calls(package, adapter, [m for m in others if _reads_ids(m)]):
                continue
            yield Hit(forward.file, forward.node, f"{adapter.name}.forward() never reads the prompt's token ids")
        elif any(n.startswith("vllm_omni.") for n in adapter.external) and not any(map(_hands_on, functions)):
            text = f"{adapter.name}.forward() reads the prompt's token ids, and the pipeline gets nothing of them"
            yield Hit(forward.file, forward.node, text)


def _pipeline_calls(package: Package, adapter: ClassModel, methods: list[FunctionModel]) -> bool:
    """Whether the upstream pipeline calls one of the methods; no where its source is not at hand."""
    found = upstream_of(package) if methods else None
    if found is None:
        return False
    source = found[1].source
    paths = {f"{name.rpartition('.')[0].replace('.', '/')}.py" for name in adapter.external}
    text = "".join(source.read(path) for path in sorted(paths) if source.exists(path))
    return any(f"self.{method.name}(" in text for method in methods)


def _reads_ids(function: FunctionModel) -> bool:
    index = function.file.index
    words = [node.value for node in index.nodes(ast.Constant, function.node) if isinstance(node.value, str)]
    words += [node.attr for node in index.nodes(ast.Attribute, function.node)]
    # Not the sentences of docstrings.
    return any("prompt" in word and "ids" in word.lower() and " " not in word for word in words)


def _puts_in_whole(function: FunctionModel) -> bool:
    """Whether a table is put into a request's prompt: its text was encoded before."""
    receivers = [c.func.value for c in function.calls if isinstance(c.func, ast.Attribute) and c.func.attr == "update"]
    held = [node.value if isinstance(node, ast.Subscript) else node for node in receivers]
    return any((getattr(node, "id", "") or getattr(node, "attr", "")) in ("prompt", "prompts") for node in held)


def _hands_on(function: FunctionModel) -> bool:
    """Whether something is put into the request, or given to a call as the prompt."""
    index = function.file.index
    for target in index.nodes(ast.Subscript, function.node):
        if isinstance(target.ctx, ast.Store):
            key, written = function.file.value(target.slice), ast.unparse(target.value).rpartition(".")[2]
            # Which entry is the text may be a setting.
            setting = not isinstance(key, str) and "negative" not in ast.unparse(target.slice)
            if key in _PROMPT or (setting and written in ("prompt", "prompts")):
                return True
    if any(isinstance(n.ctx, ast.Store) and n.attr in _PROMPT for n in index.nodes(ast.Attribute, function.node)):
        return True
    for call in function.calls:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        first = function.file.value(call.args[0]) if call.args and name == "setdefault" else None
        if (
            any(k.arg in _PROMPT for k in call.keywords)
            or name in ("encode_prompt", "text_encoder")
            or first in _PROMPT
        ):
            return True
    tables = index.nodes(ast.Dict, function.node)
    return any(isinstance(key, ast.Constant) and key.value in _PROMPT for table in tables for key in table.keys)


FAILING = (
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
        "in a method that the upstream pipeline calls",
        {
            "vllm_omni/__init__.py": "",
            "vllm_omni/diffusion/data.py": "DiffusionOutput = OmniDiffusionConfig = object\n",
            "vllm_omni/diffusion/worker/request_batch.py": "class DiffusionRequestBatch: ...\n",
            "vllm_omni/diffusion/models/toy/pipeline_toy.py": (
                "class ToyPipeline:\n    def forward(self, req):\n        return self.pick(req.prompts[0])\n"
            ),
        },
        rollout=[
            ("        self._ensure_prompt_text(req)\n", ""),
            (
                "def _ensure_prompt_text(self, req: DiffusionRequestBatch) -> None:\n        prompt = req.prompts[0]",
                "def pick(self, prompt):",
            ),
        ],
    ),
    Example(
        "put into it by a name that a loop has",
        rollout=(
            '["prompt"] = self._decode_prompt(prompt["prompt_token_ids"]',
            '[next(iter(["prompt"]))] = self._decode_prompt(prompt["prompt_token_ids"]',
        ),
    ),
    Example(
        "what was made of it beforehand",
        rollout=(
            "self._ensure_prompt_text(req)\n",
            "req.prompts[0].update(self.made_beforehand(req.sampling_params))\n",
        ),
    ),
    Example(
        "put into it by setdefault",
        rollout=(
            '["prompt"] = self._decode_prompt(prompt["prompt_token_ids"]',
            '.setdefault("prompt", self._decode_prompt(prompt["prompt_token_ids"])',
        ),
    ),
)
