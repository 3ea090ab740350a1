"""The forward code runs its layers without gradients, or cuts them off.

The loss is finite, the optimizer steps, the reward stays flat: with ``no_grad`` or ``detach`` inside ``forward`` no
gradient reaches the weights below, and LoRA's B stays zero.

    @torch.no_grad()
    def forward(self, …): …

Instead: let the trainer decide; it turns gradients off where it needs none.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.calls import attribute_name
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.streams import self_call
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC125"
NAME = "no-grad-forward"
SEVERITY = "error"
CHECKLIST = ("M5", "pitfall 10", "pitfall 19")
APPLIES = Applies(non_diffusers=True)
HELP = "remove it; the trainer turns gradients off where it needs none"
_OFF = ("torch.no_grad", "torch.inference_mode", "torch.autograd.no_grad", "torch.set_grad_enabled")


def check(package: Package) -> Hits:
    """Look at decorators, contexts and detached results in the code that ``forward`` gets to."""
    for function in package.forward_functions:
        if function.file not in package.files or function.name in ("__init__", "__post_init__"):
            continue
        file = function.file
        for decorator in function.node.decorator_list:
            target = decorator.func if isinstance(decorator, ast.Call) else decorator
            if file.qualified(target) in _OFF and _runs_layers(function, function.node):
                yield Hit(file, decorator, f"{function.name}() runs its layers without gradients")
        for block in function.nodes(ast.With):
            assert isinstance(block, ast.With)
            for item in block.items:
                entered = item.context_expr
                target = entered.func if isinstance(entered, ast.Call) else entered
                if file.qualified(target) in _OFF and _turns_off(entered) and _runs_layers(function, block):
                    yield Hit(file, entered, f"{function.name}() runs layers without gradients here")
        yield from _detached(function)


def _turns_off(entered: ast.expr) -> bool:
    """Whether a context certainly turns gradients off: ``set_grad_enabled(x)`` may turn them on."""
    if isinstance(entered, ast.Call) and attribute_name(entered) == "set_grad_enabled":
        return bool(entered.args) and isinstance(entered.args[0], ast.Constant) and entered.args[0].value is False
    return True


def _runs_layers(function: FunctionModel, node: ast.AST) -> bool:
    """Whether a block calls sub-modules, or layers that are handed in."""
    for call in function.file.index.nodes(ast.Call, node):
        if self_call(call) is not None or (isinstance(call.func, ast.Name) and call.func.id in ("layer", "block")):
            return True
    return False


def _detached(function: FunctionModel) -> Hits:
    """Look for ``detach`` of what a sub-module computed."""
    computed = {name for name, value in function.assignments if _calls_module(value)}
    for call in function.calls:
        if attribute_name(call) not in ("detach", "detach_") or not isinstance(call.func, ast.Attribute):
            continue
        of = call.func.value
        if (isinstance(of, ast.Name) and of.id in computed) or _calls_module(of):
            yield Hit(function.file, call, f"{function.name}() cuts the gradient of {ast.unparse(of)[:40]} off")


def _calls_module(value: ast.expr) -> bool:
    return any(isinstance(node, ast.Call) and self_call(node) is not None for node in ast.walk(value))


_FORWARD = "    def forward(\n        self,\n        hidden_states: Tensor,"
_CALL = "            context, latents = self._checkpointed_call(layer, context, latents, key_mask)\n"
FAILING = (
    Example("a decorator", {"model": [(_FORWARD, "    @«torch.no_grad()»\n" + _FORWARD)]}),
    Example("inference mode", {"model": [(_FORWARD, "    @«torch.inference_mode()»\n" + _FORWARD)]}),
    Example("around the layers", {"model": [(_CALL, "            with «torch.no_grad()»:\n    " + _CALL)]}),
    Example("detached", {"model": [(_CALL, _CALL + "            latents = «latents.detach()»\n")]}),
)
PASSING = (
    Example("gradients flow"),
    Example(
        "a table without gradients",
        {
            "model": [
                (
                    "        key_mask = None\n",
                    "        with torch.no_grad():\n            scale = torch.ones(1)\n"
                    "        latents = latents * scale\n        key_mask = None\n",
                ),
            ]
        },
    ),
    Example(
        "left to the caller",
        {"model": [(_CALL, "            with torch.set_grad_enabled(self.training):\n    " + _CALL)]},
    ),
)
