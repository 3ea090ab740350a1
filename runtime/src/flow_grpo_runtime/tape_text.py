"""A tape as a formula, for people to review."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from . import tape_play
from .tape_play import DETACHES, NARROWS, Program, leaves_of_node

_SIGNS = {"add": "+", "sub": "-", "subtract": "-", "rsub": "-", "mul": "*", "multiply": "*", "div": "/", "divide": "/"}
_SIGNS |= {"truediv": "/", "true_divide": "/", "matmul": "@", "pow": "**", "gt": ">", "lt": "<", "ge": ">=", "le": "<="}
_TIGHT = {"+": 1, "-": 1, "*": 2, "/": 2, "@": 2, "**": 4, ">": 0, "<": 0, ">=": 0, "<=": 0}
_UNARY, _ATOM = 3, 5
# What changes the form or the dtype of a tensor, and none of its numbers.
_FORM = frozenset({"to", "float", "double", "type", "type_as", "clone", "contiguous", "copy", *DETACHES, *NARROWS})

_DEFAULTS = (("plain", None), ("plain", False))

# A text, and how tightly its outermost operator binds.
_Text = tuple[str, int]


def formula(program: Program, constants: Sequence[Any], sign: int = 1) -> str:
    """What a program makes, as text: a line for each value that is used several times, and the velocity last.

    ``p0`` is the prediction of the denoiser's first call, ``x`` are the latents of the step. A constant that is made of
    predictions of steps before says so: no gradient goes there.

    Args:
        program, constants: of a record.
        sign: of the velocity in what the pipeline steps with.
    """
    return _Writer(program, constants).written(sign)


def formulas(record: Mapping[str, Any]) -> list[tuple[str, list[int]]]:
    """The formulas of a record, each with the steps that follow it; those that are the same but for numbers are one."""
    found: dict[str, list[int]] = {}
    first: dict[int, str] = {}
    tapes = record.get("tapes", ())
    for step, (number, constants) in enumerate(tapes):
        frame = record["programs"][number]
        if number not in first:
            named = _named(constants, [others for other, others in tapes if other == number])
            first[number] = formula(frame["program"], named, frame["sign"])
        found.setdefault(first[number], []).append(step)
    return list(found.items())


def _named(constants: Sequence[Any], all_steps: Sequence[Sequence[Any]]) -> list[Any]:
    """Numbers that differ between the steps of a program by their place: ``c0``, ``c1`` and so on, of the step."""
    alike = [len({_value(own[place]) for own in all_steps}) == 1 for place in range(len(constants))]
    return [value if _value(value) is None or alike[place] else f"c{place}" for place, value in enumerate(constants)]


def _value(constant: Any) -> float | None:
    """The number that a constant is; None for a tensor of several, and for latents."""
    if isinstance(constant, torch.Tensor):
        return float(constant) if constant.numel() == 1 and not constant.is_complex() else None
    return float(constant) if isinstance(constant, bool | int | float) else None


class _Writer:
    def __init__(self, program: Program, constants: Sequence[Any]) -> None:
        self.ops, self.end, self.constants = program["ops"], program["end"], constants
        self.earlier = set(program.get("earlier", ()))
        nodes = [node for op in self.ops for node in op[1:]] + [self.end]
        self.uses = Counter(leaf[1] for node in nodes for leaf in leaves_of_node(node) if leaf[0] == "result")
        self.lines: list[str] = []
        self.texts: list[_Text] = []

    def written(self, sign: int) -> str:
        for number, (name, arguments, named) in enumerate(self.ops):
            text = self._op(name, arguments[1], named[1])
            changes = tape_play.changes(name)
            bare = text[1] == _ATOM and "(" not in text[0]
            if (self.uses[number] > 1 and not bare) or (changes and number + 1 < len(self.ops)):
                self.lines.append(f"t{number} = {text[0]}")
                text = f"t{number}", _ATOM
            self.texts.append(text)
        end = self._text(self.end)
        velocity = end[0] if sign > 0 else f"-{self._bracketed(end, _UNARY)}"
        return "\n".join([*self.lines, f"velocity = {velocity}"])

    def _op(self, name: str, arguments: Sequence[Any], named: Mapping[str, Any]) -> _Text:
        own = tape_play.last(name)
        texts = [self._text(node) for node in arguments]
        if own in _FORM and texts:
            return texts[0]
        sign = _SIGNS.get(own)
        if sign is not None and len(texts) == 2 and not named:
            bound = _TIGHT[sign]
            back = own == "rsub" or name.rpartition(".")[2].startswith("__r")
            left, right = reversed(texts) if back else texts
            return f"{self._bracketed(left, bound)} {sign} {self._bracketed(right, bound + 1)}", bound
        if own in ("neg", "negative") and texts:
            return f"-{self._bracketed(texts[0], _UNARY)}", _UNARY
        if own == "__getitem__" and len(texts) == 2:
            return f"{self._bracketed(texts[0], _ATOM)}[{texts[1][0].strip('()')}]", _ATOM
        options = {key: node for key, node in named.items() if tuple(node) not in _DEFAULTS}
        parts = [text for text, _ in texts] + [f"{key}={self._text(node)[0]}" for key, node in options.items()]
        return f"{own.strip('_')}({', '.join(parts)})", _ATOM

    @staticmethod
    def _bracketed(text: _Text, bound: int) -> str:
        return text[0] if text[1] >= bound else f"({text[0]})"

    def _text(self, node: Sequence[Any]) -> _Text:
        kind = node[0]
        if kind == "result":
            text = self.texts[node[1]]
            return text if node[2] is None else (f"{self._bracketed(text, _ATOM)}[{node[2]}]", _ATOM)
        if kind == "source":
            return f"p{node[1]}" + (f"[{node[2]}]" if node[2] else ""), _ATOM
        if kind == "constant":
            return self._constant(node[1])
        if kind == "dict":
            return ", ".join(f"{key}={self._text(item)[0]}" for key, item in node[1].items()), _ATOM
        if kind in ("list", "tuple"):
            return "(" + ", ".join(self._text(item)[0] for item in node[1]) + ")", _ATOM
        if kind == "slice":
            return ":".join("" if tuple(item) == ("plain", None) else self._text(item)[0] for item in node[1]), _ATOM
        if kind in ("device", "ellipsis"):
            return ("device" if kind == "device" else "..."), _ATOM
        return str(node[1]).removeprefix("torch."), _ATOM

    def _constant(self, place: int) -> _Text:
        value = self.constants[place]
        if isinstance(value, str):
            return value, _ATOM
        if isinstance(value, list | tuple):
            return "x", _ATOM
        if not isinstance(value, torch.Tensor):
            return _number(float(value))
        if value.numel() == 1 and not value.is_complex():
            return _number(float(value))
        of = "earlier steps, without a gradient" if place in self.earlier else "the step"
        return f"[{'x'.join(map(str, value.shape))} numbers of {of}]", _ATOM


def _number(value: float) -> _Text:
    return f"{value:.6g}", _ATOM if value >= 0 else _UNARY
