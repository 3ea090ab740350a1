"""Compares tensors for contracts in the host, which never imports the package.

A contract's process sends two tensors as safetensors and gets one number. A package that patches torch affects only its
own process; the number a contract reports must be one computed here.
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
"""Bytes of the tensors of one comparison."""
_ASKED, _ANSWER = struct.Struct(">BQ"), struct.Struct(">d")
_UNITS = ("absolute", "relative")


def difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest difference; infinite if either tensor has a NaN, which ``max`` would lose."""
    value = (found.double() - expected.double()).abs().max().item()
    return value if value == value else math.inf


def relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest difference relative to the largest expected magnitude; infinite for a NaN."""
    scale = expected.double().abs().max().item()
    value = difference(found, expected) / max(scale, 1e-12)
    return value if value == value else math.inf


def unequal(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Return 0 if two tensors have the same shape and values, else 1."""
    return 0.0 if torch.equal(found, expected) else 1.0


OPERATIONS = (difference, relative, unequal)


class Asker:
    """The contract's end of a socket to the host."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __call__(self, operation: Any, found: torch.Tensor, expected: torch.Tensor) -> float:
        """Return the host's comparison of two tensors."""
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
        """Read the available data and answer each complete question; False if the contract's process closed its end."""
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
        except Exception:  # whatever the package sent instead of tensors
            return False
        return bool(part)

    def confirmed(self, result: dict[str, Any]) -> dict[str, Any]:
        """Return the result of a contract; a failure if its number was not computed here."""
        value = result.get("value")
        told = result.get("status") == "pass" and result.get("unit") in _UNITS and bool(self.answers)
        if not told or not isinstance(value, int | float) or float(value) in self.answers:
            return result
        reason = f"reports {value:g}, which no comparison outside of the package's process gave"
        return {**result, "status": "fail", "reason": reason}
