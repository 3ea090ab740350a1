"""Weights of a released checkpoint: their files, and their names in the training module."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch
from safetensors import safe_open
from torch import Tensor

from .export import Piece

Pairs = tuple[tuple[str, str], ...]


class Rule(NamedTuple):
    """What becomes of tensors of the checkpoint; ``{n}`` stands for a number, and a name that ends in a dot for all
    that go on from there.

    Attributes:
        op: ``rename``; ``drop``; ``split`` takes one tensor apart, ``join`` puts several together.
        sources: names in the checkpoint.
        targets: names in the training module, none where it is dropped.
        axis: along which a tensor is taken apart or put together.
        lengths: of the parts along it; None for equal ones.
        reason: why it is dropped.
    """

    op: str
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    axis: int = 0
    lengths: tuple[int, ...] | None = None
    reason: str | None = None


def prefix_rules(renamed: Pairs, ignored: Pairs) -> tuple[Rule, ...]:
    """Rules of two tables of prefixes: checkpoint to training, and checkpoint to the reason why training has no use.

    What does not end in a dot is a whole name. The longest that fits decides.
    """
    rows = [Rule("rename", (_literal(source),), (_literal(target),)) for source, target in renamed]
    rows += [Rule("drop", (_literal(source),), (), reason=reason) for source, reason in ignored]
    return tuple(sorted(rows, key=lambda rule: -len(rule.sources[0])))


def _literal(name: str) -> str:
    return name.replace("{", "{{").replace("}", "}}")


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    """Regular expression of a name in a rule; its last group is what goes on after a prefix."""
    parts = re.split(r"(\{\{|\}\}|\{\w+\})", pattern)
    named = [
        f"(?P<{part[1:-1]}>[0-9]+)" if len(part) > 2 and part[0] == "{" else re.escape(part[:1] if i % 2 else part)
        for i, part in enumerate(parts)
    ]
    return re.compile("".join(named) + ("(.*)" if not pattern or pattern.endswith(".") else "()"), re.ASCII | re.DOTALL)


def _match(pattern: str, others: tuple[str, ...], name: str) -> tuple[str, ...] | None:
    """The names that ``others`` stand for where ``pattern`` stands for ``name``."""
    match = _expression(pattern).fullmatch(name)
    if match is None:
        return None
    return tuple(other.format(**match.groupdict()) + match[match.re.groups] for other in others)


@dataclass(frozen=True)
class ReleasedWeights:
    """Where a checkpoint has its weights, and under which names.

    The rules load it, name the weights that are saved, and name those that reach the rollout engine.

    Attributes:
        module: class of the training module, for messages.
        rules: in order; the first that fits decides. A tensor that none knows stops the load.
        files: with the weights.
        saved: the file that weights are saved in.
        index: of a checkpoint in several files, which names them in place of ``files``; empty where it has none.
        folder: of the weights, where a path may be that of the whole repository.
        computed: parameters that the module computes: no checkpoint has them, and the engine is not sent them.
        parameters: of the module for a checkpoint, on the meta device; needed where a rule takes tensors apart.
    """

    module: str
    rules: tuple[Rule, ...]
    files: tuple[str, ...]
    saved: str
    index: str = ""
    folder: str = ""
    computed: tuple[str, ...] = ()
    parameters: Callable[[str], Mapping[str, Tensor]] | None = None

    def rule_of(self, source: str) -> tuple[Rule, int, tuple[str, ...]]:
        """The rule that a checkpoint tensor falls under, which of its names it bears, and the parameters it goes into.

        Raises:
            KeyError: no rule knows the name.
        """
        for rule in self.rules:
            for place, pattern in enumerate(rule.sources):
                targets = _match(pattern, rule.targets, source)
                if targets is not None:
                    return rule, place, targets
        raise KeyError(f"checkpoint tensor {source!r} is in no rule of {self.module}")

    def origin_of(self, name: str) -> tuple[Rule, int, tuple[str, ...]]:
        """The rule that leads to a parameter, which of its targets it is, and the checkpoint tensors it is made of.

        Raises:
            KeyError: no rule leads to it.
        """
        sides = [(rule, place) for rule in self.rules for place in range(len(rule.targets))]
        for rule, place in sorted(sides, key=lambda side: -len(side[0].targets[side[1]])):
            keys = _match(rule.targets[place], rule.sources, name)
            if keys is not None and all(name in self.rule_of(key)[2] for key in keys):
                return rule, place, keys
        raise KeyError(f"no rule leads to parameter {name!r} of {self.module}")

    def training_keys(self, name: str) -> tuple[str, ...]:
        """Names of the parameters that a checkpoint tensor goes into, none where it is ignored on purpose."""
        return self.rule_of(name)[2]

    def checkpoint_keys(self, name: str) -> tuple[str, ...]:
        """Names of the checkpoint tensors that make a parameter; several where it is joined."""
        return self.origin_of(name)[2]

    def tensors(
        self, weights: Iterable[tuple[str, Tensor]], training_name: Callable[[str], str | None] | None = None
    ) -> Iterator[tuple[str, Tensor]]:
        """Turn weights of the training module into the checkpoint's tensors.

        Parts of one tensor are held back until all of them have come.

        Args:
            weights: names and tensors.
            training_name: the parameter behind a name, None for weights that are passed on as they are.

        Raises:
            KeyError: no rule leads to a name.
            ValueError: some parts of a tensor never came; the message names it.
        """
        waiting: dict[str, dict[int, Tensor]] = {}
        for sent, tensor in weights:
            name = training_name(sent) if training_name is not None else sent
            if name is None:
                yield sent, tensor
                continue
            if name in self.computed:
                continue
            rule, place, keys = self.origin_of(name)
            if rule.op == "join":
                lengths = rule.lengths or (tensor.shape[rule.axis] // len(keys),) * len(keys)
                yield from zip(keys, torch.split(tensor, list(lengths), dim=rule.axis), strict=True)
            elif rule.op == "split":
                parts = waiting.setdefault(keys[0], {})
                parts[place] = tensor
                if len(parts) == len(rule.targets):
                    del waiting[keys[0]]
                    yield keys[0], torch.cat([parts[i] for i in range(len(rule.targets))], dim=rule.axis)
            else:
                yield keys[0], tensor
        if waiting:
            first = next(iter(waiting))
            came = ", ".join(self.rule_of(first)[2][place] for place in sorted(waiting[first]))
            raise ValueError(f"checkpoint tensor {first!r} and {len(waiting) - 1} more came in part only: {came}")

    def place(self, model_path: str) -> str:
        """The folder of the weights where ``model_path`` is the whole repository; else ``model_path``."""
        subfolder = os.path.join(model_path, self.folder)
        return subfolder if self.folder and os.path.isdir(subfolder) else model_path

    def open(self, model_path: str) -> dict[str, Tensor]:
        """Map the checkpoint's tensors into memory under training names; nothing is read or copied yet.

        Raises:
            FileNotFoundError: a weight file is missing.
            KeyError: no rule knows a tensor.
            ValueError: two tensors lead to one parameter, or parts do not make a whole.
        """
        model_path = self.place(model_path)
        shapes = self.parameters(model_path) if self.parameters is not None else {}
        state: dict[str, Tensor] = {}
        joins: dict[str, dict[int, Tensor]] = {}
        for path in (os.path.join(model_path, name) for name in self._weight_files(model_path)):
            if not os.path.isfile(path):
                raise FileNotFoundError(f"{path} is missing")
            with safe_open(path, framework="pt", device="cpu") as file:
                for source in file.keys():
                    rule, place, targets = self.rule_of(source)
                    tensors = [file.get_tensor(source)] if targets else []
                    if rule.op == "split":
                        tensors = _parts(tensors[0], [shapes.get(target) for target in targets], rule.axis, source)
                    for target, tensor in zip(targets, tensors, strict=True):
                        known, key = (joins.setdefault(target, {}), place) if rule.op == "join" else (state, target)
                        if key in known:
                            raise ValueError(f"{path}: {source!r} is the second tensor that leads to {target!r}")
                        known[key] = tensor  # type: ignore[index]
        for target, parts in joins.items():
            state[target] = self._joined(target, parts)
        return state

    def pieces(self, model_path: str) -> dict[tuple[str, str], list[Piece]]:
        """Which parameters, and which of their parts, each tensor of a checkpoint is made of.

        Returns:
            By file, from ``model_path``, and key; what is dropped is left out.

        Raises:
            FileNotFoundError, KeyError, ValueError: as :meth:`open`.
        """
        place = self.place(model_path)
        shapes = {name: tuple(tensor.shape) for name, tensor in self.open(model_path).items()}
        pieces: dict[tuple[str, str], list[Piece]] = {}
        for name in self._weight_files(place):
            path = os.path.join(place, name)
            with safe_open(path, framework="pt", device="cpu") as file:
                keys = list(file.keys())
            for key in keys:
                rule, part, targets = self.rule_of(key)
                axis = rule.axis
                if rule.op == "rename":
                    group = [Piece(targets[0])]
                elif rule.op == "split":
                    lengths = [shapes[target][axis] for target in targets]
                    group = [
                        Piece(t, axis, 0, n, sum(lengths[:i]))
                        for i, (t, n) in enumerate(zip(targets, lengths, strict=True))
                    ]
                elif rule.op == "join":
                    count = len(rule.sources)
                    length = shapes[targets[0]][axis]
                    lengths = list(rule.lengths or (length // count,) * count)
                    group = [Piece(targets[0], axis, sum(lengths[:part]), lengths[part], 0)]
                else:
                    continue
                pieces[os.path.relpath(path, model_path), key] = group
        return pieces

    def _weight_files(self, model_path: str) -> tuple[str, ...]:
        """Names of the files with weights: those of the index, where there is one; what was saved is one file."""
        if not self.index or not os.path.isfile(os.path.join(model_path, self.index)):
            released = self.index or any(os.path.isfile(os.path.join(model_path, name)) for name in self.files)
            return self.files if released else (self.saved,)
        with open(os.path.join(model_path, self.index), encoding="utf-8") as file:
            names = sorted(set(json.load(file)["weight_map"].values()))
        outside = [name for name in names if os.path.basename(name) != name]
        if outside:
            raise ValueError(f"{self.index} in {model_path} names {outside[0]!r}, which is no file beside it")
        return tuple(names)

    def _joined(self, target: str, parts: dict[int, Tensor]) -> Tensor:
        """The parameter that tensors of the checkpoint make, one after the other."""
        rule, _, keys = self.origin_of(target)
        missing = [key for place, key in enumerate(keys) if place not in parts]
        if missing:
            raise ValueError(f"parameter {target!r} is joined from {len(keys)} tensors; {missing[0]!r} is missing")
        ordered = [parts[place] for place in range(len(keys))]
        sizes = tuple(part.shape[rule.axis] for part in ordered)
        if sizes != (rule.lengths or sizes[:1] * len(sizes)):
            raise ValueError(f"the parts of parameter {target!r} are {sizes} long along axis {rule.axis}")
        return torch.cat(ordered, dim=rule.axis)

    def check(self, expected: Mapping[str, Tensor], state: Mapping[str, Tensor], origin: str) -> None:
        """Compare names and shapes in both directions.

        Raises:
            ValueError: names every missing, unexpected and mis-shaped tensor (the first ten of each).
        """
        wrong = [n for n in expected.keys() & state.keys() if expected[n].shape != state[n].shape]
        problems = {
            "missing": sorted(map(self._shown, expected.keys() - state.keys())),
            "unexpected": sorted(map(self._shown, state.keys() - expected.keys())),
            "mis-shaped": sorted(
                f"{self._shown(n)} {tuple(state[n].shape)} for {tuple(expected[n].shape)}" for n in wrong
            ),
        }
        found = [
            f"{len(names)} {kind}: {', '.join(names[:10])}{', …' if len(names) > 10 else ''}"
            for kind, names in problems.items()
            if names
        ]
        if found:
            raise ValueError(f"{origin} does not fit {self.module}; " + "; ".join(found))

    def _shown(self, name: str) -> str:
        return " + ".join(self.checkpoint_keys(name))


def _parts(joined: Tensor, wanted: list[Tensor | None], axis: int, source: str) -> list[Tensor]:
    """Views of the parts of a tensor, as long along ``axis`` as the parameters they are for.

    Raises:
        ValueError: the parameters do not add up to the tensor.
    """
    lengths = [part.shape[axis] if part is not None and part.ndim > axis else -1 for part in wanted]
    if min(lengths) < 0 or joined.ndim <= axis or sum(lengths) != joined.shape[axis]:
        shapes = [None if part is None else tuple(part.shape) for part in wanted]
        raise ValueError(f"{source!r} {tuple(joined.shape)} cannot be taken apart into parameters of {shapes}")
    return list(torch.split(joined, lengths, dim=axis))
