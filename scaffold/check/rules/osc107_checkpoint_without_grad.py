"""``forward`` checkpoints its layers whether gradients are needed or not.

Rollout log-probs and the reference policy are computed under ``no_grad``. A direct ``checkpoint`` call there saves
random states and inputs for a backward pass that never comes, and warns at every layer that no input requires a
gradient.

    for layer in self.layers:
        x = checkpoint(layer, x, use_reentrant=False)

Instead: ``self._checkpointed_call(layer, x)`` of the base class, or a test for ``torch.is_grad_enabled()``.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits
from scaffold.check.rules.osc106_implicit_use_reentrant import CHECKPOINT

ID = "OSC107"
NAME = "checkpoint-without-grad"
SEVERITY = "warning"
CHECKLIST = ("M5", "pitfall 10")
APPLIES = Applies(non_diffusers=True)
HELP = "use self._checkpointed_call, or test torch.is_grad_enabled() first"
_GUARDS = ("is_grad_enabled", "gradient_checkpointing", "training", "requires_grad", "use_checkpoint")


def check(package: Package) -> Hits:
    """Look for a test around every direct call that ``forward`` gets to."""
    for function in package.forward_functions:
        if function.file not in package.files:
            continue
        for call in function.calls:
            if function.file.qualified(call.func) in CHECKPOINT and not _guarded(function, call):
                yield Hit(function.file, call.func, f"{function.name}() checkpoints under no_grad as well")


def _guarded(function: FunctionModel, call: ast.Call) -> bool:
    """Whether a test around the call, or one that leaves the function before it, asks for gradients."""
    tests: list[ast.expr] = []
    for outer in function.file.index.ancestors(call):
        if isinstance(outer, (ast.If, ast.IfExp, ast.While)):
            tests.append(outer.test)
        if outer is function.node:
            break
    for statement in function.nodes(ast.If):
        assert isinstance(statement, ast.If)
        leaves = any(isinstance(node, (ast.Return, ast.Continue)) for node in statement.body)
        if leaves and statement.lineno < call.lineno:
            tests.append(statement.test)
    for test in tests:
        for node in ast.walk(test):
            word = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
            # A local name may stand for any of these tests.
            if any(guard in word for guard in _GUARDS) or (isinstance(node, ast.Name) and isinstance(test, ast.Name)):
                return True
    return False


_CALL = "self._checkpointed_call(layer, context, latents, key_mask)"
_DIRECT = "torch.utils.checkpoint.checkpoint(layer, context, latents, key_mask, use_reentrant=False)"
_MARKED = _DIRECT.replace("torch.utils.checkpoint.checkpoint", "«torch.utils.checkpoint.checkpoint»")
FAILING = (
    Example("always", {"model": [(_CALL, _MARKED)]}),
    Example("under a test of something else", {"model": [(_CALL, f"{_MARKED} if key_mask is None else {_CALL}")]}),
)
PASSING = (
    Example("the base class does it"),
    Example(
        "after a test",
        {"model": [(_CALL, f"{_DIRECT} if torch.is_grad_enabled() else layer(context, latents, key_mask)")]},
    ),
    Example("by the module's own flag", {"model": [(_CALL, f"{_DIRECT} if self.gradient_checkpointing else {_CALL}")]}),
)
