"""Writes numbers of guidance that depend on a request as expressions over its settings."""

from __future__ import annotations

import ast
from typing import Any

from scaffold.inspect.facts import Evidence
from scaffold.inspect.guidance import number_of, truth
from scaffold.inspect.guidance_conditions import COMPARED, Conditions, Facts, UnclearError
from scaffold.inspect.guidance_scales import effective, named_scales
from scaffold.inspect.program.algebra import options, same
from scaffold.inspect.program.denoising import Denoising
from scaffold.inspect.program.values import Choice, Const, Op, Param
from scaffold.source.values import Value

SETTINGS = "guidance"
ARITHMETIC: dict[str, ast.operator] = {"+": ast.Add(), "-": ast.Sub(), "*": ast.Mult(), "/": ast.Div()}


class Numbers(Conditions):
    """Writes numbers.

    Attributes:
        settings: what the user sets: ``name``, ``default``, ``others`` that are asked next.
        places: where the arithmetic stands.
    """

    def __init__(self, loop: Denoising) -> None:
        super().__init__(loop)
        self.settings: list[dict[str, Any]] = []
        self.places: list[Evidence | None] = []

    def scalar(self, node: Value, facts: Facts) -> ast.expr:
        """A number that the request decides: a setting, a constant, arithmetic of them, or how two of them compare.

        Raises:
            UnclearError: it is made of anything else.
        """
        node = self._settled(number_of(node), facts)
        if isinstance(node, Const) and isinstance(node.value, (int, float)):
            return ast.Constant(node.value)
        if isinstance(node, Op) and node.op in ARITHMETIC and len(node.args) == 2:
            left, right = (self.scalar(arg, facts) for arg in node.args)
            return ast.BinOp(left, ARITHMETIC[node.op], right)
        if isinstance(node, Op) and node.op in COMPARED and len(node.args) == 2:
            left, right = (self.scalar(arg, facts) for arg in node.args)
            return ast.Compare(left, [COMPARED[node.op]], [right])
        if isinstance(node, (Param, Choice)) or (isinstance(node, Op) and node.op == "or"):
            return self._setting(node)
        raise UnclearError

    def _setting(self, node: Value) -> ast.expr:
        """A setting of the request, which may be found under other names where it is not under its own."""
        named = named_scales(node)
        names = list(dict.fromkeys(param.key.rpartition(".")[2] for param in named))
        if not names:
            raise UnclearError
        if not any(entry["name"] == names[0] for entry in self.settings):
            default = effective(node, named[0])
            self.settings.append({"name": names[0], "default": default, "others": names[1:]})
            self.places.append(named[0].at)
        return ast.Subscript(ast.Name(SETTINGS, ast.Load()), ast.Constant(names[0]), ast.Load())

    def _settled(self, node: Value, facts: Facts) -> Value:
        """Return the only value of a turn-dependent choice at steps with guidance."""
        if not isinstance(node, Choice) or node.cond is None or not self._is_gate(node):
            return node
        known = truth(node.cond, facts)
        if known is not None:
            return self._settled(node.options[0 if known else 1], facts)
        kept = [option for option in options(node) if not self._contradicts(node, option, facts)]
        if len({id(option) for option in kept}) != 1:
            inner = [self._settled(option, facts) for option in node.options]
            inner = [o for o in inner if not (isinstance(o, Const) and self._contradicts(node, o, facts))]
            if not inner or any(not same(inner[0], other) for other in inner):
                raise UnclearError
            kept = inner
        return kept[0]
