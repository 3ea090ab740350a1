"""``forward`` of the training module does not return a tuple of one element.

The trainer takes ``module(**inputs)[0]``. Of a bare tensor that is the first sample: shapes lose their batch
dimension, broadcasting hides it, and the log-probs of the whole batch are computed from one sample's velocity.

    return velocity

Instead: ``return (velocity,)``.
"""

from __future__ import annotations

import ast

from scaffold.check.editing import replace_expression
from scaffold.check.example import Example
from scaffold.check.model.arms import arms
from scaffold.check.model.calls import resolve
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.pyfile import PythonFile
from scaffold.check.model.reach import name_called_on_self
from scaffold.check.model.streams import self_call
from scaffold.check.model.tensors import is_tensor, says_tensor
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC108"
NAME = "bare-forward-result"
SEVERITY = "error"
CHECKLIST = ("M5", "pitfall 39")
APPLIES = Applies(non_diffusers=True)
HELP = "return a tuple of one element: (velocity,)"
FIX_SAFETY = "safe"
_TENSOR_METHODS = {
    *(
        "float",
        "half",
        "bfloat16",
        "to",
        "view",
        "reshape",
        "flatten",
        "unflatten",
        "contiguous",
        "transpose",
        "permute",
    ),
    *("squeeze", "unsqueeze", "type_as", "clone", "neg", "mul", "add", "sub", "div", "chunk_cat", "narrow"),
}


def check(package: Package) -> Hits:
    """Look at every return statement of ``forward``."""
    module = package.training_module
    forward = module.method("forward") if module is not None else None
    if module is None or forward is None or forward.file not in package.files or forward.is_abstract:
        return
    if not forward.returns and not any(isinstance(node, ast.Raise) for node in forward.node.body):
        yield Hit(forward.file, forward.node, f"{module.name}.forward() returns nothing", fixable=False)
    for statement in forward.returns:
        value = statement.value
        if value is None:
            yield Hit(forward.file, statement, f"{module.name}.forward() returns nothing here", fixable=False)
            continue
        for written, found in arms(forward, value):
            if isinstance(found, ast.Tuple):
                if len(found.elts) != 1 and not any(isinstance(item, ast.Starred) for item in found.elts):
                    text = f"{module.name}.forward() returns {len(found.elts)} values"
                    yield Hit(forward.file, written, text, fixable=False)
            elif (helper := _helper(forward, found)) is not None:
                yield from _through(module.name, forward, helper, written)
            elif _is_tensor(forward, found):
                yield Hit(forward.file, written, f"{module.name}.forward() returns a bare tensor", data=written)
            elif _taken_apart(forward, found):
                text = f"{module.name}.forward() returns the samples one by one: tuple() goes through the batch"
                yield Hit(forward.file, written, text, fixable=False)
            elif isinstance(found, (ast.Dict, ast.List)) or (isinstance(found, ast.Constant) and found.value is None):
                yield Hit(forward.file, written, f"{module.name}.forward() returns no tuple", fixable=False)


def _helper(forward: FunctionModel, value: ast.expr) -> FunctionModel | None:
    """Return the method or function of the package that a result is left to."""
    found = resolve(forward.file, value, forward.cls) if isinstance(value, ast.Call) else None
    if isinstance(found, ClassModel) and isinstance(value, ast.Call) and name_called_on_self(forward, value):
        found = found.method("forward")
    return found if isinstance(found, FunctionModel) and found is not forward and not found.is_abstract else None


def _through(name: str, forward: FunctionModel, helper: FunctionModel, written: ast.expr) -> Hits:
    """Judge what a helper gives back, where all that it gives back is of one kind."""
    given = [found for item in helper.returns if item.value is not None for _, found in arms(helper, item.value)]
    if not given or len(given) < len(helper.returns):
        return
    said = says_tensor(helper) and not any(isinstance(value, (ast.List, ast.Dict)) for value in given)
    if all(
        not isinstance(value, ast.Tuple) and (said or _is_tensor(helper, value) or is_tensor(helper, value))
        for value in given
    ):
        text = f"{name}.forward() returns what {helper.name}() gives back, a bare tensor"
        yield Hit(forward.file, written, text, data=written)
    elif all(isinstance(value, ast.Tuple) and len(value.elts) != 1 for value in given):
        if not any(isinstance(item, ast.Starred) for value in given for item in value.elts):  # type: ignore[attr-defined]
            text = f"{name}.forward() returns what {helper.name}() gives back, more than one value"
            yield Hit(forward.file, written, text, fixable=False)


def fix(hit: Hit) -> str:
    """Put the value into a tuple."""
    assert isinstance(hit.file, PythonFile)
    return replace_expression(hit.file, hit.data, f"({ast.unparse(hit.data)},)")


def _taken_apart(forward: FunctionModel, value: ast.expr) -> bool:
    """Whether a tensor is made a tuple of its samples."""
    made = isinstance(value, ast.Call) and forward.file.qualified(value.func) in ("tuple", "list")
    if not made or not isinstance(value, ast.Call) or len(value.args) != 1:
        return False
    # What forward() is declared to return says nothing of what is inside of tuple().
    found = [inner for _, inner in arms(forward, value.args[0])]
    return all(isinstance(inner, (ast.Call, ast.BinOp)) and _is_tensor(forward, inner) for inner in found)


def _is_tensor(forward: FunctionModel, value: ast.expr) -> bool:
    """Whether an expression is certainly a tensor."""
    if isinstance(value, (ast.BinOp, ast.UnaryOp)):
        inner = value.operand if isinstance(value, ast.UnaryOp) else value.left
        return not isinstance(inner, (ast.Tuple, ast.List, ast.Constant))
    if isinstance(value, ast.Subscript):
        # Of a tuple one takes an element by number; slices and several indices belong to tensors.
        return isinstance(value.slice, ast.Tuple)
    if not isinstance(value, ast.Call):
        return _annotated_tensor(forward) and isinstance(value, (ast.Name, ast.Attribute))
    name = self_call(value)
    if name is not None and forward.cls is not None:
        built = [part for part in _built(forward, name) if part is not None]
        return bool(built) and all(kind.startswith("torch.nn.") for kind in built)
    qualified = forward.file.qualified(value.func)
    if qualified is not None:
        return qualified.startswith(("torch.nn.functional.", "torch.cat", "torch.stack", "torch.where"))
    return isinstance(value.func, ast.Attribute) and value.func.attr in _TENSOR_METHODS


def _built(forward: FunctionModel, name: str) -> list[str | None]:
    from scaffold.check.model.submodules import submodules

    assert forward.cls is not None
    return [part.qualified for part in submodules(forward.cls) if part.name == name and not part.repeated]


def _annotated_tensor(forward: FunctionModel) -> bool:
    annotation = forward.node.returns
    return annotation is not None and forward.file.qualified(annotation) == "torch.Tensor"


_RETURN = "return (self.llm2vae(self.norm(latents)),)"
FAILING: tuple[Example, ...] = (
    Example(
        "nothing",
        {
            "model": [
                (_RETURN, "_ = self.llm2vae(self.norm(latents))"),
                (
                    "    def forward(\n        self,\n        hidden_states",
                    "    def «forward»(\n        self,\n        hidden_states",
                ),
            ]
        },
    ),
    Example("the result of a layer", {"model": [(_RETURN, "return «self.llm2vae(self.norm(latents))»")]}),
    Example(
        "by name", {"model": [(_RETURN, "velocity = self.llm2vae(self.norm(latents))\n        return «velocity»")]}
    ),
    Example(
        "one arm",
        {
            "model": [
                (_RETURN, "out = self.llm2vae(self.norm(latents))\n        return «out» if self.training else (out,)")
            ]
        },
    ),
    Example(
        "by a name, in a branch",
        {
            "model": [
                (
                    _RETURN,
                    "out = (self.llm2vae(self.norm(latents)),)\n        if not self.training:\n"
                    "            out = «self.llm2vae(self.norm(latents))»\n        return out",
                )
            ]
        },
    ),
    Example("converted", {"model": [(_RETURN, "return «self.llm2vae(self.norm(latents)).float()»")]}),
    Example("sample by sample", {"model": [(_RETURN, "return «tuple(self.llm2vae(self.norm(latents)))»")]}),
    Example("negated", {"model": [(_RETURN, "return «-self.llm2vae(self.norm(latents))»")]}),
    Example("two values", {"model": [(_RETURN, "return «self.llm2vae(self.norm(latents)), context»")]}),
    Example("a dictionary", {"model": [(_RETURN, 'return «{"sample": self.llm2vae(self.norm(latents))}»')]}),
    Example(
        "declared as a tensor",
        {
            "model": [
                (
                    _RETURN,
                    "velocity = self.llm2vae(self.norm(latents))\n        velocity = velocity * 1\n"
                    "        return «velocity»",
                ),
                (
                    "text_attention_mask: Tensor | None = None,\n    ) -> tuple[Tensor]:",
                    "text_attention_mask: Tensor | None = None,\n    ) -> Tensor:",
                ),
            ]
        },
    ),
)
_HELPER = """
    def _velocity(self, latents: Tensor){said}:
        return {given}

    @classmethod
    def from_pretrained("""
_LOAD = "\n    @classmethod\n    def from_pretrained("
_LEFT = "return «self._velocity(latents)»"


def _left_to(title: str, given: str, said: str = "", line: str = _LEFT, *also: str) -> Example:
    return Example(title, {"model": [(_RETURN, line), (_LOAD, _HELPER.format(said=said, given=given))]}, also=also)


FAILING += (
    _left_to("left to a method", "self.llm2vae(self.norm(latents))", " -> Tensor"),
    _left_to(
        "left to a method, by name",
        "self.llm2vae(self.norm(latents))",
        line="out = self._velocity(latents)\n        return «out»",
    ),
    _left_to("two values of a method", "(self.llm2vae(self.norm(latents)), latents)"),
)
PASSING = (
    _left_to(
        "a tuple of a method",
        "(self.llm2vae(self.norm(latents)),)",
        " -> tuple[Tensor]",
        _LEFT.replace("«", "").replace("»", ""),
    ),
    Example("a tuple"),
    Example(
        "a tuple by name", {"model": [(_RETURN, "result = (self.llm2vae(self.norm(latents)),)\n        return result")]}
    ),
    Example(
        "a tuple in both arms",
        {
            "model": [
                (
                    _RETURN,
                    "out = self.llm2vae(self.norm(latents))\n        return (out,) if self.training else (out.float(),)",
                )
            ]
        },
    ),
    Example("made elsewhere", {"model": [(_RETURN, "return self._result(latents, self.llm2vae, self.norm)")]}),
    Example("left to diffusers", base="diffusers"),
)
