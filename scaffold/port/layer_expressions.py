"""Expressions about layers of the engine's: their attributes, their calls, the plain ones that stand for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import libcst as cst

from scaffold.port.blocks import code
from scaffold.port.constants import truth
from scaffold.port.layer import Arguments, Built, UnsupportedError
from scaffold.port.layer_dicts import entry_of
from scaffold.port.layers import class_of, kind_of
from scaffold.port.names import Scope, dotted

if TYPE_CHECKING:
    from scaffold.port.classes import ClassEntry, HeldLayer
    from scaffold.port.engine import Engine


# Conditions that the surroundings decide: only the side that is taken is carried over.


class Deciding(cst.CSTTransformer):
    """Rewrites conditional expressions.

    Attributes:
        problems: what has no counterpart, since the last `clear`.
        assumed: names of answers that were taken as given, since the last `clear`.
        decided: whether a call about the surroundings was answered since the last `clear`.
    """

    def __init__(self, known: dict[str, object]) -> None:
        super().__init__()
        self.known = known
        self.problems: list[str] = []
        self.assumed: list[str] = []
        self.decided = False

    def clear(self) -> None:
        """Forget what the last statement met."""
        self.problems, self.assumed, self.decided = [], [], False

    def rewrite(self, node: cst.BaseExpression) -> cst.BaseExpression:
        """Return the expression as it stands in the port."""
        found = node.visit(self)
        assert isinstance(found, cst.BaseExpression)
        return found

    def visit_IfExp(self, node: cst.IfExp) -> bool:
        return False

    def leave_IfExp(self, original_node: cst.IfExp, updated_node: cst.IfExp) -> cst.BaseExpression:
        before = len(self.problems)
        test = self.rewrite(original_node.test)
        holds = truth(test, self.known)
        if holds is not None:
            del self.problems[before:]
            return _wrapped(self.rewrite(original_node.body if holds else original_node.orelse))
        return updated_node.with_changes(
            test=test, body=self.rewrite(original_node.body), orelse=self.rewrite(original_node.orelse)
        )

    def visit_BooleanOperation(self, node: cst.BooleanOperation) -> bool:
        return False

    def leave_BooleanOperation(
        self, original_node: cst.BooleanOperation, updated_node: cst.BooleanOperation
    ) -> cst.BaseExpression:
        ends = isinstance(original_node.operator, cst.Or)
        before = len(self.problems)
        left = self.rewrite(original_node.left)
        holds = truth(left, self.known)
        if holds is not None:
            del self.problems[before:]
            return cst.Name(str(holds)) if holds == ends else _wrapped(self.rewrite(original_node.right))
        middle = len(self.problems)
        right = self.rewrite(original_node.right)
        if truth(right, self.known) == ends and middle > before:
            # What the left side asked for was not carried over, and does not matter.
            del self.problems[before:]
            return cst.Name(str(ends))
        return updated_node.with_changes(left=left, right=right)


def _wrapped(node: cst.BaseExpression) -> cst.BaseExpression:
    """Return an expression that may stand where the one around it had parentheses or several lines."""
    if isinstance(node, (cst.Name, cst.Integer, cst.SimpleString)) or node.lpar:
        return node
    return node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


class LayerExpressions(Deciding):
    """Rewrites what one function does with layers; ``lost`` are names whose values are not carried over."""

    def __init__(self, engine: Engine, scope: Scope, owner: ClassEntry | None, known: dict[str, object]) -> None:
        super().__init__(known)
        self.engine, self.scope, self.owner = engine, scope, owner
        self.lost: set[str] = set()
        self._bare = False  # whether a layer is stored or compared, not handed on

    def _held(self, node: cst.BaseExpression) -> HeldLayer | None:
        """Return the layer of the engine's that an expression such as ``self.proj`` means."""
        entry = entry_of(node)
        if entry is not None and dotted(entry[0].value) == "self" and self.owner is not None:
            return self.engine.layer(self.owner, f"{entry[0].attr.value}.{entry[1]}")
        if not isinstance(node, cst.Attribute):
            return None
        if isinstance(node.value, cst.Name) and node.value.value == "self" and self.owner is not None:
            return self.engine.layer(self.owner, node.attr.value)
        if isinstance(node.value, cst.Name) and self.scope.origin(node.value.value) is not None:
            return None
        return self.engine.layer_anywhere(node.attr.value)

    def _layer_attribute(self, node: cst.Attribute, held: HeldLayer) -> cst.BaseExpression:
        name, built = node.attr.value, held.built
        if name in built.reads:
            entry = entry_of(node.value)
            assert entry is not None or isinstance(node.value, cst.Attribute)
            base = self.rewrite((entry[0] if entry is not None else cst.ensure_type(node.value, cst.Attribute)).value)
            return cst.Attribute(base, cst.Name(f"{held.attribute.replace('.', '_')}_{name}"))
        fixed = self._fixed(node, "")
        if fixed is not None:
            return fixed
        if built.fused:
            self.problems.append(f"{name} of the fused layer {held.attribute}")
        layer = self._part(node.value, held, built.parts[0][0] if built.fused else None)
        return cst.Attribute(layer, cst.Name(built.renames.get(name, name)))

    def _first_weight(self, node: cst.BaseExpression) -> cst.BaseExpression | None:
        """Return the weight of a fused layer's first part for ``self.qkv.weight``."""
        held = self._held(node.value) if isinstance(node, cst.Attribute) and node.attr.value == "weight" else None
        if held is None or not held.built.fused:
            return None
        return cst.Attribute(
            self._part(cst.ensure_type(node, cst.Attribute).value, held, held.built.parts[0][0]), cst.Name("weight")
        )

    def _part(self, node: cst.BaseExpression, held: HeldLayer, part: str | None) -> cst.BaseExpression:
        """Return ``self.q`` for ``self.qkv``, or ``self.proj["q"]`` for ``self.proj["qkv"]``; as it is without part."""
        entry = entry_of(node)
        if entry is not None:
            held_in = cst.Attribute(self.rewrite(entry[0].value), entry[0].attr)
            key = cst.SimpleString(f'"{part or entry[1]}"')
            return cst.Subscript(held_in, [cst.SubscriptElement(cst.Index(key))])
        base = self.rewrite(cst.ensure_type(node, cst.Attribute).value)
        return cst.Attribute(base, cst.Name(part or held.attribute))

    def _fixed(self, node: cst.BaseExpression, call: str) -> cst.BaseExpression | None:
        """Return the literal for ``self.attn.backend.name`` where it is known, whatever is behind the layer."""
        text, inner = "", node
        while isinstance(inner, cst.Attribute):
            held = self._held(inner.value)
            text = f".{inner.attr.value}{text}"
            if held is not None:
                literal = held.built.fixed.get(text[1:] + call)
                if literal is None:
                    return None
                self.decided = True
                return cst.parse_expression(literal)
            inner = inner.value
        return None

    def layer_call(self, node: cst.BaseExpression) -> tuple[cst.BaseExpression, HeldLayer] | None:
        """Return the call of a layer that the port makes otherwise, without the pair around its result."""
        if not isinstance(node, cst.Call) or not isinstance(node.func, (cst.Attribute, cst.Subscript)):
            return None
        held = self._held(node.func)
        if held is None:
            return None
        args = [self._argument(argument) for argument in node.args]
        if not held.built.fused:
            return cst.Call(self._part(node.func, held, None), args), held
        calls = [cst.Call(self._part(node.func, held, str(name)), args) for name, _ in held.built.parts]
        joined = ", ".join(code(call) for call in calls)
        torch = self.engine.library("torch")
        return cst.parse_expression(f"{torch}.cat(({joined}), dim=-1)"), held

    def _pairing(self, layer: cst.BaseExpression) -> cst.BaseExpression:
        """Return a layer that is handed on, as what gives upstream's pair when it is called."""
        made = self.engine.support("joined_layer", "paired_layer")
        return cst.parse_expression(f"{made}({code(layer)})")

    def _by_text(self, node: cst.Call) -> cst.BaseExpression | None:
        """Return ``getattr(x, "proj")`` as what gives a pair, where every layer of that name does upstream."""
        name = node.args[1].value if len(node.args) > 1 and dotted(node.func) == "getattr" else None
        if not isinstance(name, cst.SimpleString) or not str(name.evaluated_value).isidentifier():
            return None
        held = self._held(cst.Attribute(node.args[0].value, cst.Name(str(name.evaluated_value))))
        if held is None or not held.built.pairs or held.built.fused:
            return None
        return self._pairing(node.with_changes(args=[self._argument(argument) for argument in node.args]))

    def _argument(self, node: cst.Arg) -> cst.Arg:
        bare, self._bare = self._bare, False
        rewritten = node.with_changes(value=self.rewrite(node.value))
        self._bare = bare
        return rewritten

    def _made(self, path: str, node: cst.Call) -> cst.BaseExpression:
        try:
            built = self.build(path, node, None)
        except UnsupportedError as error:
            self.problems.append(str(error))
            return node
        if built.fused or built.pairs:
            self.problems.append(f"{path.rpartition('.')[2]} made elsewhere than for an attribute")
            return node
        return cst.parse_expression(built.parts[0][1])

    def build(self, path: str, node: cst.Call, attribute: str | None) -> Built:
        """Return what stands for a layer, its arguments rewritten.

        Raises:
            UnsupportedError: it has no counterpart.
        """
        kind = kind_of(path)
        assert kind is not None
        if any(argument.star for argument in node.args):
            made = class_of(path)
            if made is None:
                raise UnsupportedError("arguments that are unpacked")
            whole = [self._argument(argument) for argument in node.args]
            return Built(((None, code(cst.Call(cst.Name(self.engine.support(*made)), whole))),))
        dropped = ("quant_config", "prefix")
        given: list[str] = []
        keywords: dict[str, str] = {}
        for argument in node.args:
            if argument.keyword is None:
                given.append(code(self.rewrite(argument.value)))
            elif argument.keyword.value not in dropped:
                keywords[argument.keyword.value] = code(self.rewrite(argument.value))
        arguments = Arguments(tuple(given), keywords, path.rpartition(".")[2])
        return kind.build(arguments, self.engine.site(self.scope.info.name, attribute))

    def visit_Subscript(self, node: cst.Subscript) -> bool:
        entry = entry_of(node)
        by_name = entry is not None and dotted(entry[0].value) == "self"
        return self._first_of_pair(node) is None and not by_name

    def leave_Subscript(self, original_node: cst.Subscript, updated_node: cst.Subscript) -> cst.BaseExpression:
        held = self._first_of_pair(original_node)
        if held is None:
            layer = self._held(original_node)
            if layer is not None and (layer.built.fused or layer.built.pairs):
                self.problems.append(f"the layer {layer.attribute} itself")
            return updated_node
        called = self.layer_call(original_node.value)
        assert called is not None
        return called[0]

    def _first_of_pair(self, node: cst.Subscript) -> HeldLayer | None:
        """Return the layer of ``self.proj(x)[0]``."""
        if not isinstance(node.value, cst.Call) or not isinstance(node.value.func, (cst.Attribute, cst.Subscript)):
            return None
        held = self._held(node.value.func)
        return held if held is not None and held.built.pairs and _is_first(node.slice) else None


def _is_first(slices: Sequence[cst.SubscriptElement]) -> bool:
    return len(slices) == 1 and isinstance(slices[0].slice, cst.Index) and code(slices[0].slice.value) == "0"
