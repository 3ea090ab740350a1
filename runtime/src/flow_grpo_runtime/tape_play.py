"""Tapes, played: what a pipeline made of its predictions is made of others, with gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from . import tape_names
from .tape_names import DETACHES, NARROWS

HALF = (torch.float16, torch.bfloat16)

# A program: {"ops": [(name, arguments, named arguments), …], "end": node}. A node is a tuple whose first entry says
# where a value comes from: ("source", call, leaf), ("result", op, place or None), ("constant", place), ("plain",
# value), or what holds others: ("list" | "tuple" | "slice", nodes), ("dict", {name: node}); or ("device",),
# ("ellipsis",), ("format", name).
Program = Mapping[str, Any]
Leaf = tuple[int, int]


class TapeError(RuntimeError):
    """The pipeline makes its velocity in a way that training cannot make again; one line that says what, and where."""


def leaves_of_node(node: Sequence[Any]) -> Iterator[Any]:
    """The nodes of a tree that hold no others."""
    if node[0] in ("list", "tuple", "slice", "dict"):
        for item in node[1].values() if node[0] == "dict" else node[1]:
            yield from leaves_of_node(item)
    else:
        yield node


def sources(program: Program) -> list[Leaf]:
    """The predictions that a program takes, as call and leaf, sorted."""
    nodes = [node for op in program["ops"] for node in op[1:]] + [program["end"]]
    return sorted({(node[1], node[2]) for tree in nodes for node in leaves_of_node(tree) if node[0] == "source"})


def play(
    program: Program, constants: Sequence[Any], leaves: Mapping[Leaf, torch.Tensor], latents: torch.Tensor
) -> torch.Tensor:
    """Make of other predictions what the pipeline made of its own.

    What the pipeline computed in half precision is computed in float32. What it detached is not: a rollout has no
    gradients, and training needs them.

    Args:
        program: of :meth:`tape.Tape.cut`, as it is or as it comes back from a record.
        constants: tensors and floats of the step; ``("latents", shape, dtype, earlier)`` stands for its latents.
        leaves: predictions by call and leaf, shaped as the denoiser returned them. They are not changed.
        latents: ``(1, …)`` float32 latents of the step.

    Returns:
        What the pipeline would have given to its update, in the shape it had there.

    Raises:
        TapeError: a function of the program is none that a tape may hold.
    """
    device = next(iter(leaves.values())).device
    begun = {place: _wide(leaf, device).clone() for place, leaf in leaves.items()}
    results: list[Any] = []

    def constant(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return _wide(value, device).clone()
        if isinstance(value, list | tuple):
            return latents.to(device, _dtype(value[2])).reshape(value[1]).clone()
        return value

    def value_of(node: Sequence[Any]) -> Any:
        kind = node[0]
        if kind == "result":
            return results[node[1]] if node[2] is None else results[node[1]][node[2]]
        if kind == "source":
            return begun[node[1], node[2]]
        if kind == "constant":
            return constant(constants[node[1]])
        if kind == "dict":
            return {name: value_of(item) for name, item in node[1].items()}
        if kind in ("list", "tuple", "slice"):
            made = [value_of(item) for item in node[1]]
            return made if kind == "list" else tuple(made) if kind == "tuple" else slice(*made)
        if kind == "device":
            return device
        if kind == "ellipsis":
            return ...
        if kind == "format":
            found = getattr(torch, node[1], None)
            if not isinstance(found, torch.memory_format):
                raise TapeError(f"the record names {str(node[1])[:60]!r}, which is no format of memory")
            return found
        return _dtype(node[1]) if isinstance(node[1], torch.dtype) else node[1]

    known = tape_names.functions()
    with torch.autocast(device.type, enabled=False):
        for name, positional, named in program["ops"]:
            if name not in known:
                raise TapeError(f"the record calls {str(name)[:60]!r}, which is no function that a tape may hold")
            given, own = value_of(positional), tape_names.last(name)
            if own in DETACHES:
                results.append(given[0].view_as(given[0]))
            elif own in NARROWS:
                results.append(given[0].float())
            else:
                made = known[name](*given, **value_of(named))
                results.append(given[0] if tape_names.changes(name) else made)
        found: torch.Tensor = value_of(program["end"])
        return found


def require_gradients(
    program: Program, constants: Sequence[Any], leaves: Mapping[Leaf, torch.Tensor], latents: torch.Tensor
) -> None:
    """See that gradients reach the predictions of a program.

    Args:
        program, constants, leaves, latents: as in :func:`play`.

    Raises:
        TapeError: they do not, or autograd cannot follow (a change in place of one of several views, say).
    """
    with torch.inference_mode(False), torch.enable_grad():
        begun = {place: leaf.detach().to(torch.float32, copy=True).requires_grad_() for place, leaf in leaves.items()}
        try:
            made = play(program, constants, begun, latents.clone()).float().flatten()
            (made * torch.linspace(-1.0, 2.0, len(made), device=made.device)).sum().backward()  # type: ignore[no-untyped-call]
        except TapeError:
            raise
        except RuntimeError as error:
            raise TapeError(
                f"autograd cannot follow what the pipeline makes of its predictions: {_line(error)}"
            ) from error
    gradients = [leaf.grad for leaf in begun.values()]
    if any(gradient is None for gradient in gradients) or not any(bool(g.any()) for g in gradients if g is not None):
        raise TapeError("no gradient reaches a prediction that the pipeline takes its step with")
    if not all(bool(g.isfinite().all()) for g in gradients if g is not None):
        raise TapeError("the gradient of a prediction that the pipeline takes its step with is not finite")


def _line(error: Exception) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__


def _wide(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    return tensor.to(device, torch.float32 if tensor.dtype in HALF else None)


def _dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in HALF else dtype
