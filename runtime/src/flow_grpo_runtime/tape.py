"""What a pipeline makes of its denoiser's predictions, noted as it happens, for training to make again.

A package needs no formula of guidance, no sign of its prediction and no noise levels: the rollout sends what happened.

In the rollout
    ``recording.SchedulerInPlace`` (or ``DifferenceInPlace``, ``UpdateInPlace``) of a ``common`` without a ``guide``
    holds a :class:`Tape`, and ``CallRecorder`` runs it: from the return of the denoiser to the next call of it, or to
    the update that the recorder replaces, every function of torch that is called with something made of a prediction is
    noted, with where each of its arguments comes from. At the update the tape is cut: what does not reach the tensor
    that the pipeline steps with goes. The rest is a program (names and places, the same for many steps) and the
    constants of the step. It is played on the rollout's own predictions at once and must give what the pipeline steps
    with, bit for bit in float32; a backward pass, once for each program, must reach every prediction.

In the record (``carried``, column ``denoiser_calls``), beside the calls
    ``programs``: ``[{"program", "leaves", "sign"}]``; ``tapes``: for each step the number of its program and its
    constants; ``levels``: ``(S + 1,)`` float32 noise levels from 1 downwards, the last one included.

In training
    ``RecordedTraining`` asks the module once for a micro-batch: ``module(calls=DenoiserCalls)`` returns
    ``(predictions,)``, as :meth:`replay.DenoiserCalls.evaluate` makes them; ``calls.velocity(predictions)`` plays the
    tape of each sample, and ``calls.levels`` are the noise levels to step with. Samples may differ in their guidance.

A package is therefore ``CFG_DEFAULTS`` (settings of guidance that requests may bring), ``CALLS = CallPlan(…)``,
``resolve_guidance = settings_of(CFG_DEFAULTS)``, a training module whose ``forward(calls=None, **inputs)`` returns
``(calls.evaluate(<its own forward>, <dtype of its weights>),)``, and the two adapters.

What a pipeline keeps of the predictions of one step for later ones (momentum, a cached branch) is a constant of these:
its gradient ends there. It is followed from step to step, and ``Tape.state`` says where it takes part.

What cannot be carried is refused with :class:`TapeError`: one line that names the statement's file and line.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from . import tape_play
from .tape_play import ABOUT_CHECKS, CHECKS, DRAWS, HALF, TapeError, leaves_of_node, words
from .values import place_of

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_READS = frozenset(
    words("""
item tolist numpy __bool__ __int__ __float__ __index__ __complex__ __array__ __contains__ is_nonzero equal allclose
nonzero argwhere unique bincount histc data_ptr storage untyped_storage __dlpack__
""")
)
_ADDRESSES = frozenset({"data_ptr", "storage", "untyped_storage"})  # of them, what reads no numbers


@dataclass(frozen=True)
class _Known:
    """A tensor that is followed: held, so that no id is given twice.

    Attributes:
        node: where it comes from; ``("refused", why)`` where that cannot be carried.
        predicted: a prediction is part of it, and not only noise.
        checks: tensors whose being finite is all that it says.
    """

    tensor: torch.Tensor
    node: tuple[Any, ...]
    predicted: bool = True
    checks: tuple[torch.Tensor, ...] = ()


@dataclass(frozen=True)
class _Op:
    """A function that was called, and where the memory of its tensors lies."""

    name: str
    arguments: tuple[Any, ...]
    named: tuple[Any, ...]
    places: frozenset[int]
    changed: int | None


class _Guard(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees what reaches torch beside its functions, which a tape cannot note."""

    def __init__(self, tape: Tape) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tape = tape

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not self.tape.in_function:
            self.tape.passed_by(str(func), _tensors((args, kwargs or {})), result)
        return result


class Tape(TorchFunctionMode):
    """Watches the functions of torch from a call of the denoiser to the next one, or to the update."""

    def __init__(self) -> None:
        super().__init__()
        self.in_function = False  # a function that is noted runs
        self._on = False
        self._guard: _Guard | None = None
        self.blind = False  # between the last step and this one nothing was watched
        self.state: list[str] = []  # where predictions of steps before take part, and how
        self._earlier: dict[int, weakref.ref[torch.Tensor]] = {}  # made of predictions of steps before, by identity
        self._earlier_places: dict[int, weakref.ref[torch.Tensor]] = {}
        self._empty()

    def _empty(self) -> None:
        self._known: dict[int, _Known] = {}
        self._places: dict[int, bool] = {}  # where followed tensors lie, and whether a prediction is part of one
        self._bases: dict[int, tuple[tuple[Any, ...], torch.dtype]] = {}  # what covers the memory of a place, in order
        self._ops: list[_Op] = []
        self._constants: list[Any] = []
        self._of_earlier: dict[int, str] = {}  # constants that are made of predictions of steps before, and where
        self.half = False

    def clear(self) -> None:
        """Forget the step, but for what is made of its predictions: that is a constant of later steps."""
        self.pause()
        for known in self._known.values():
            if known.predicted:
                self._note_earlier(known.tensor)
        self._empty()

    def close(self) -> None:
        """Forget everything; raises nothing, whatever happened before."""
        try:
            self.pause()
        except TapeError:
            self._on = False
        self._earlier, self._earlier_places, self.state = {}, {}, []
        self._empty()

    def pause(self) -> None:
        """Watch nothing: the denoiser runs, or the step is taken.

        Raises:
            TapeError: a mode of torch was entered or left in between.
        """
        if not self._on:
            return
        if self._guard is None:
            self._leave()
            return
        top = torch._C._len_torch_function_stack() - 1
        ours = top >= 0 and torch._C._get_function_stack_at(top) is self
        if not ours or _get_current_dispatch_mode() is not self._guard:
            raise TapeError(f"the pipeline enters or leaves a mode of torch between its denoiser and its step{where()}")
        self._guard.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        self._guard = None
        self.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        self._on = False

    def _leave(self) -> None:
        """Step out from under the modes that were entered since."""
        above = []
        while torch._C._len_torch_function_stack() and (mode := torch._C._pop_torch_function_stack()) is not self:
            above.append(mode)
        for mode in reversed(above):
            torch._C._push_on_torch_function_stack(mode)
        self._on = False

    def resume(self) -> None:
        """Watch from here on."""
        if not self._on:
            self.__enter__()  # type: ignore[no-untyped-call]
            self._guard = _Guard(self)
            self._guard.__enter__()  # type: ignore[no-untyped-call]
            self._on = True

    def follow_on(self) -> None:
        """Watch, between two steps, only what becomes of the predictions before."""
        # A mode that was entered before this one and is left before it would take it away, and stay itself.
        self.blind = bool(torch._C._len_torch_function_stack())
        if not self._on and not self.blind:
            self.__enter__()  # type: ignore[no-untyped-call]
            self._on = True

    def source(self, tensor: torch.Tensor, call: int, leaf: int) -> None:
        """Follow a prediction from here on."""
        self._put(tensor, ("source", call, leaf))

    def refuse(self, tensor: torch.Tensor, why: str) -> None:
        """Follow a tensor that may not take part in the step."""
        self._put(tensor, ("refused", why))

    def cut(self, target: torch.Tensor) -> tuple[dict[str, Any], list[Any]]:
        """What ``target`` is made of, and nothing besides: the program and its constants; see :mod:`tape_play`.

        Raises:
            TapeError: it is made of no prediction, or of what cannot be carried.
        """
        found = self._known.get(id(target))
        if found is None:
            raise TapeError(
                "the pipeline steps with a tensor that functions of torch did not make of this step's predictions: one"
                f" of an earlier step, of a module that is not watched (a second denoiser), or of numpy{where()}"
            )
        needed, places = _results(found.node), {place_of(target)}
        before = -1
        while len(needed) != before:  # what is changed in place is part of whatever lies there
            before = len(needed)
            for index in tuple(needed):
                op = self._ops[index]
                needed |= _results(op.arguments) | _results(op.named)
                places |= op.places
            needed |= {index for index, op in enumerate(self._ops) if op.changed in places}
        return self._written(sorted(needed), found.node)

    def _written(self, needed: list[int], end: tuple[Any, ...]) -> tuple[dict[str, Any], list[Any]]:
        number = {old: new for new, old in enumerate(needed)}
        told: dict[int, int] = {}

        def moved(node: tuple[Any, ...]) -> tuple[Any, ...]:
            if node[0] == "refused":
                raise TapeError(node[1])
            if node[0] == "result":
                return "result", number[node[1]], node[2]
            if node[0] == "constant":
                return "constant", told.setdefault(node[1], len(told))
            if node[0] == "dict":
                return "dict", {name: moved(item) for name, item in node[1].items()}
            return (node[0], [moved(item) for item in node[1]]) if node[0] in ("list", "tuple", "slice") else node

        ops = [(op.name, moved(op.arguments), moved(op.named)) for op in (self._ops[old] for old in needed)]
        program = {"ops": ops, "end": moved(end)}
        program["earlier"] = sorted(new for old, new in told.items() if old in self._of_earlier)
        for place in (self._of_earlier[old] for old in told if old in self._of_earlier):
            self.say(f"{place}: predictions of steps before take part")
        return program, [self._constants[old] for old in told]

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if not self._on or self.in_function:
            return func(*args, **(kwargs or {}))
        self.in_function = True
        try:
            return self._seen(func, args, dict(kwargs or {}))
        finally:
            self.in_function = False

    def _seen(self, func: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        kwargs = dict(named)
        into = named.pop("out", None)
        tensors = _tensors((args, named))
        name = tape_play.name_of(func)
        own = tape_play.last(name)
        if own in DRAWS and self._guard is not None:
            return self._drawn(func, name, args, kwargs, tensors)
        touched = [tensor for tensor in tensors if self._follows(tensor)]
        if not touched and not (isinstance(into, torch.Tensor) and self._follows(into)):
            return self._untouched(func(*args, **kwargs), name, own, args, tensors)
        if name in tape_play.asked():
            return func(*args, **named)
        if func is torch.Tensor.__iter__:
            func, name, own = torch.Tensor.unbind, "torch.Tensor.unbind", "unbind"
            return iter(self._noted(func, name, own, args, named, touched, None))
        if func is torch.Tensor.__deepcopy__:
            func, name, own, args = torch.Tensor.clone, "torch.Tensor.clone", "clone", args[:1]
        return self._noted(func, name, own, args, named, touched, into)

    def _noted(
        self, func: Any, name: str, own: str, args: tuple[Any, ...], named: dict[str, Any], touched: Any, into: Any
    ) -> Any:
        """Run a function, and note it where it makes a tensor of what is followed."""
        if into is not None and (not isinstance(into, torch.Tensor) or self._follows(into)):
            raise TapeError(f"the pipeline calls {name} with out= for what it made of a prediction{where()}")
        predicted = any(self._is_predicted(tensor) for tensor in touched)
        checks = self._checks(own, touched, args)
        if own in _READS:
            if predicted and not checks:
                raise TapeError(
                    f"the pipeline reads numbers of a prediction with {own.strip('_')}(){where()}: what it decides or"
                    " computes by them in Python, training cannot make anew; compute it with tensors"
                )
            if not all(bool(tensor.isfinite().all()) for tensor in checks):
                raise TapeError(f"a prediction is not finite, and the pipeline decides by that{where()}")
            return func(*args, **named)
        changes = tape_play.changes(name) and name.startswith("torch.")
        if changes and not isinstance(args[0], torch.Tensor):
            raise TapeError(f"the pipeline calls {name}{where()}, which is no function that a tape may hold")
        why = None if name in tape_play.functions() else f"the pipeline steps with a result of {name}{where()}, which"
        why = why and f"{why} is no function that a tape may hold"
        arguments: Any = ("tuple", [])
        others: Any = ("dict", {})
        places = {place_of(tensor) for tensor in touched}
        try:
            if changes and not self._follows(args[0]):
                self._put(args[0], self._changeable(args[0]))
            arguments, others = self._node(args, own), self._node(named, own)
        except TapeError as error:
            why = why or str(error)
        result = func(*args, **(named if into is None else {**named, "out": into}))
        if not name.startswith("torch."):  # an operator: it may write into what it is given
            self._mark(name, _tensors((args, named)))
        made = [args[0]] if changes else _tensors(result)
        if not made:
            if predicted and result is not None and not isinstance(result, tuple | list):
                raise TapeError(
                    f"the pipeline calls {name} on what it made of a prediction{where()}, which is no function that a"
                    " tape may hold"
                )
            return result
        places |= {place_of(tensor) for tensor in made if tensor.numel()}
        self.half = self.half or any(tensor.dtype in HALF for tensor in made)
        if why:
            arguments = ("refused", why)
        self._ops.append(_Op(name, arguments, others, frozenset(places), place_of(args[0]) if changes else None))
        several = not changes and not isinstance(result, torch.Tensor)
        for index, tensor in enumerate(result if several else made):
            if isinstance(tensor, torch.Tensor):
                node = ("refused", why) if why else ("result", len(self._ops) - 1, index if several else None)
                self._put(tensor, node, predicted, checks)
        return result

    def _drawn(self, func: Any, name: str, args: tuple[Any, ...], named: dict[str, Any], tensors: Any) -> Any:
        """Noise may be drawn beside the step, and not in it: training would need the same."""
        result = func(*args, **named)
        predicted = any(self._follows(tensor) and self._is_predicted(tensor) for tensor in tensors)
        why = f"the pipeline draws noise for its step with {name}{where()}, which training cannot draw again"
        for tensor in _tensors(result):
            # Noise may be laid over what is given (dropout), or have its form alone.
            self._put(tensor, ("refused", why), predicted and not name.endswith("_like"))
        if tape_play.changes(name):
            places = frozenset({place_of(args[0])})
            self._ops.append(_Op(name, ("refused", why), ("dict", {}), places, place_of(args[0])))
        return result

    def _untouched(self, result: Any, name: str, own: str, args: tuple[Any, ...], tensors: list[torch.Tensor]) -> Any:
        """What is made of predictions of steps before is a constant of this one, and of later ones."""
        if not self._earlier or own in CHECKS or not any(self._is_earlier(tensor) for tensor in tensors):
            return result
        if own in _READS - _ADDRESSES:
            self.say(f"{_statement()}: numbers of predictions of steps before are read with {own.strip('_')}()")
        changed = [args[0]] if tape_play.changes(name) and isinstance(args[0], torch.Tensor) else []
        for tensor in [*_tensors(result), *changed]:
            self._note_earlier(tensor)
        return result

    def say(self, kept: str) -> None:
        """Note that state takes part."""
        if kept not in self.state:
            self.state.append(kept)

    def passed_by(self, name: str, tensors: list[torch.Tensor], result: Any) -> None:
        """An operation that no function of torch called: what it makes of a prediction may not take part in the step.

        Raises:
            TapeError: it gives numbers of a prediction to Python.
        """
        if not any(self._follows(tensor) and self._is_predicted(tensor) for tensor in tensors):
            return
        made = _tensors(result)
        if not made and result is not None and not isinstance(result, tuple | list):
            raise TapeError(
                f"the pipeline calls {name}{where()} on what it made of a prediction, past torch's functions"
            )
        self._mark(name, [*made, *tensors])

    def _mark(self, name: str, tensors: list[torch.Tensor]) -> None:
        why = f"the pipeline steps with a result of {name}{where()}, which calls past the functions of torch"
        for tensor in tensors:
            if not self._follows(tensor):
                self._put(tensor, ("refused", why))

    def _put(
        self,
        tensor: torch.Tensor,
        node: tuple[Any, ...],
        predicted: bool = True,
        checks: tuple[torch.Tensor, ...] = (),
    ) -> None:
        self._known[id(tensor)] = _Known(tensor, node, predicted, checks)
        if tensor.numel() and not tensor.is_meta:
            place = place_of(tensor)
            self._places[place] = self._places.get(place, False) or predicted

    def _follows(self, tensor: torch.Tensor) -> bool:
        """Whether it is followed, or lies where something lies that is."""
        if id(tensor) in self._known:
            return True
        return bool(self._places) and not tensor.is_meta and bool(tensor.numel()) and place_of(tensor) in self._places

    def _is_predicted(self, tensor: torch.Tensor) -> bool:
        known = self._known.get(id(tensor))
        return known.predicted if known is not None else self._places.get(place_of(tensor), False)

    def _checks(self, own: str, touched: list[torch.Tensor], args: tuple[Any, ...]) -> tuple[torch.Tensor, ...]:
        if own in CHECKS:
            return (args[0],) if args and isinstance(args[0], torch.Tensor) else ()
        found = [self._known[id(tensor)].checks if id(tensor) in self._known else () for tensor in touched]
        if all(found) and (own in ABOUT_CHECKS or own in _READS):
            return tuple(tensor for checks in found for tensor in checks)
        return ()

    def _note_earlier(self, tensor: torch.Tensor) -> None:
        reference = weakref.ref(tensor)
        self._earlier[id(tensor)] = reference
        if tensor.numel() and not tensor.is_meta:
            self._earlier_places[place_of(tensor)] = reference

    def _is_earlier(self, tensor: torch.Tensor) -> bool:
        reference = self._earlier.get(id(tensor))
        if reference is not None and reference() is tensor:
            return True
        reference = self._earlier_places.get(place_of(tensor)) if tensor.numel() and not tensor.is_meta else None
        return reference is not None and reference() is not None

    def _constant(self, value: Any, *, earlier: bool = False) -> tuple[Any, ...]:
        self._constants.append(value)
        if earlier:
            self._of_earlier[len(self._constants) - 1] = _statement()
        return "constant", len(self._constants) - 1

    def _changeable(self, tensor: torch.Tensor) -> tuple[Any, ...]:
        """The node of a tensor that was no part of a prediction, and is to be changed: other views of it follow."""
        place, earlier = place_of(tensor), self._is_earlier(tensor)
        length = tensor.untyped_storage().nbytes() // tensor.element_size()
        covers = tensor.is_contiguous() and tensor.numel() == length
        flat = tensor if covers else tensor.as_strided((length,), (1,), 0)
        constant = self._constant(flat.detach().clone(), earlier=earlier)
        self._ops.append(_Op("torch.Tensor.clone", ("tuple", [constant]), ("dict", {}), frozenset({place}), None))
        self._bases[place] = ("result", len(self._ops) - 1, None), tensor.dtype
        return self._bases[place][0] if covers else self._through(tensor)

    def _through(self, tensor: torch.Tensor) -> tuple[Any, ...]:
        """The node of a tensor that lies where something lies that was changed."""
        place = place_of(tensor)
        base, dtype = self._bases.get(place, (None, None))
        if base is None or dtype != tensor.dtype:
            raise TapeError(f"the pipeline reads a prediction through a view that it made of it before{where()}")
        form = [list(tensor.shape), list(tensor.stride()), int(tensor.storage_offset())]
        nodes = [base, *(self._node(part, "as_strided") for part in form)]
        self._ops.append(_Op("torch.Tensor.as_strided", ("tuple", nodes), ("dict", {}), frozenset({place}), None))
        return "result", len(self._ops) - 1, None

    def _node(self, value: Any, own: str) -> tuple[Any, ...]:
        """Where an argument comes from."""
        if isinstance(value, torch.Tensor):
            if id(value) in self._known:
                return self._known[id(value)].node
            if self._follows(value):
                return self._through(value)
            return self._constant(value.detach().clone(), earlier=self._is_earlier(value))
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, float | complex):
            return self._constant(value) if isinstance(value, float) else self._constant(torch.tensor(value))
        if isinstance(value, dict):
            return "dict", {name: self._node(item, own) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return "list" if isinstance(value, list) else "tuple", [self._node(item, own) for item in value]
        if isinstance(value, slice):
            return "slice", [self._node(item, own) for item in (value.start, value.stop, value.step)]
        if value is Ellipsis:
            return ("ellipsis",)
        if isinstance(value, torch.device) or (own == "to" and isinstance(value, str)):
            return ("device",)
        if isinstance(value, torch.memory_format):
            return "format", str(value).removeprefix("torch.")
        if value is None or isinstance(value, bool | int | str | torch.dtype):
            return "plain", value
        raise TapeError(f"the pipeline calls {own} with a {type(value).__name__}{where()}, which cannot be carried")


def where() -> str:
    """The statement that the pipeline is at: `` (file:line)``; nothing where no frame is its own."""
    path, line = _place()
    return f" ({path.rpartition('site-packages' + os.sep)[2]}:{line})" if path else ""


def _statement() -> str:
    """The same without folders, which are those of a machine: what is carried is written into packages."""
    path, line = _place()
    return f"{os.path.basename(path)}:{line}" if path else "a statement"


def _place() -> tuple[str, int]:
    frame = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith((_HERE, _TORCH, "<")):
            return path, frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return "", 0


def _results(node: tuple[Any, ...]) -> set[int]:
    return {leaf[1] for leaf in leaves_of_node(node) if leaf[0] == "result"}


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, slice):
        return _tensors((value.start, value.stop, value.step))
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [tensor for item in items for tensor in _tensors(item)]
