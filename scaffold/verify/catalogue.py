"""Lists the contracts by parsing their modules, which import torch and are only imported in child processes."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from scaffold.files.reading import read_text

_OPTIONAL = ("seconds", "megabytes", "diffusers", "recorded", "half", "rolled")
CONTRACTS = Path(__file__).resolve().parent / "contracts"


@dataclass(frozen=True)
class ContractEntry:
    """One contract.

    Attributes:
        module: its module in ``scaffold.verify.contracts``, with its class where the module has several.
        id: stable name of the contract.
        title: the contract as a sentence.
        pitfalls: numbers in the list of known bugs that a failure may mean.
        seconds: time limit.
        megabytes: limit of additional address space, or None for none (accelerator drivers map far more).
        diffusers: release of diffusers that it must run on, or None for the installed one.
        recorded: whether it replays recorded rollouts to drive a package with a ported denoiser.
        half: whether those rollouts are in half precision.
        rolled: whether it is about the rollout of a hand-written package whose pipeline was recorded.
    """

    module: str
    id: str
    title: str
    pitfalls: tuple[int, ...] = ()
    seconds: float = 60.0
    megabytes: int | None = 4096
    diffusers: str | None = None
    recorded: bool = True
    half: bool = False
    rolled: bool = False


@lru_cache(maxsize=1)
def catalogue() -> tuple[ContractEntry, ...]:
    """Every contract, sorted by id."""
    entries = [entry for path in sorted(CONTRACTS.glob("*.py")) for entry in _entries(path)]
    return tuple(sorted(entries, key=lambda entry: entry.id))


def _entries(path: Path) -> Iterator[ContractEntry]:
    """The contract that a module is, or those that its classes are."""
    body = ast.parse(read_text(path)).body
    parts = {path.stem: body}
    parts |= {f"{path.stem}.{node.name}": node.body for node in body if isinstance(node, ast.ClassDef)}
    for module, statements in parts.items():
        values = _constants(statements)
        if "ID" in values:
            optional = {name: values[name.upper()] for name in _OPTIONAL if name.upper() in values}
            yield ContractEntry(module, values["ID"], values["TITLE"], tuple(values.get("PITFALLS", ())), **optional)


def _constants(statements: Iterable[ast.stmt]) -> dict[str, Any]:
    """Literals that a module or class assigns to upper-case names."""
    values = {}
    for node in statements:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.isupper():
            try:
                values[node.targets[0].id] = ast.literal_eval(node.value)
            except ValueError:
                continue
    return values
