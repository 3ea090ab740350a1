"""Compares tensors for contracts, in the host, where nothing of the package is ever imported.

A contract's process sends two tensors as safetensors and gets one number. What the package has put in place of torch's
functions reaches its own process alone; the number that a contract reports must be one that was given here.
"""

from __future__ import annotations

import math
import os
import socket
import struct
from typing import Any

import torch
from safetensors.torch import load, save

MOST_BYTES = 512 << 20
"""Of the tensors of one comparison."""
_ASKED, _ANSWER = struct.Struct(">BQ"), struct.Struct(">d")
_UNITS = ("absolute", "relative")


def difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Largest difference; infinite where one of the two is not a number, which ``max`` would lose."""
    value = (found.double() - expected.double()).abs().max().item()
    return value if value == value else math.inf


def relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Largest difference, relative to the largest expected magnitude; infinite where something is not a number."""
    scale = expected.double().abs().max().item()
    value = difference(found, expected) / max(scale, 1e-12)
    return value if value == value else math.inf


def unequal(found: torch.Tensor, expected: torch.Tensor) -> float:
    """0 where two tensors have one shape and the same values, else 1."""
    return 0.0 if torch.equal(found, expected) else 1.0


OPERATIONS = (difference, relative, unequal)


class Asker:
    """The contract's end of a socket to the host."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __call__(self, operation: Any, found: torch.Tensor, expected: torch.Tensor) -> float:
        """Return what the host says of two tensors."""
        if operation is not unequal:
            torch.broadcast_tensors(found, expected)  # type: ignore[no-untyped-call,unused-ignore]  # the host has no words for what this raises
        data = save({"found": _plain(found), "expected": _plain(expected)})
        message = memoryview(_ASKED.pack(OPERATIONS.index(operation), len(data)) + data)
        while message:
            message = message[os.write(self._descriptor, message) :]
        answer = b""
        while len(answer) < _ANSWER.size:
            part = os.read(self._descriptor, _ANSWER.size - len(answer))
            if not part:
                raise RuntimeError("the comparison gave no answer")
            answer += part
        return float(_ANSWER.unpack(answer)[0])


def _plain(value: torch.Tensor) -> torch.Tensor:
    return value.detach().cpu().contiguous().clone()


class Judge:
    """The host's end: answers a contract's questions, and remembers the answers."""

    def __init__(self, ours: socket.socket) -> None:
        self.socket, self._asked = ours, bytearray()
        self.answers: set[float] = set()
        ours.setblocking(False)

    def hear(self) -> bool:
        """Read what is there and answer each whole question; False where the contract's process has closed its end."""
        try:
            part = self.socket.recv(1 << 20)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._asked += part
        try:
            while len(self._asked) >= _ASKED.size:
                operation, count = _ASKED.unpack_from(self._asked)
                if count > MOST_BYTES:
                    return False
                end = _ASKED.size + count
                if len(self._asked) < end:
                    break
                tensors = load(bytes(self._asked[_ASKED.size : end]))
                del self._asked[:end]
                value = OPERATIONS[operation](tensors["found"], tensors["expected"])
                self.answers.add(value)
                self.socket.send(_ANSWER.pack(value))
        except Exception:  # whatever the package has sent in place of tensors
            return False
        return bool(part)

    def confirmed(self, result: dict[str, Any]) -> dict[str, Any]:
        """Return the result of a contract; a failure where its number is none of those that were given here."""
        value = result.get("value")
        told = result.get("status") == "pass" and result.get("unit") in _UNITS and bool(self.answers)
        if not told or not isinstance(value, int | float) or float(value) in self.answers:
            return result
        reason = f"reports {value:g}, which no comparison outside of the package's process gave"
        return {**result, "status": "fail", "reason": reason}
