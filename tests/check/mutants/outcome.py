"""What `check` finds in the reference integration and in mutants of it; in processes of their own, to be quick."""

from __future__ import annotations

import ast
import multiprocessing
import traceback
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from mutants import all_mutants
from scaffold.check.engine import check_targets
from scaffold.check.finding import Finding
from scaffold.check.model import pyfile
from scaffold.check.model.project import Project
from scaffold.check.model.tree import MemoryTree
from scaffold.check.targets import Target

WORKERS = 2


@dataclass(frozen=True)
class Outcome:
    """What checking one mutant gave.

    Attributes:
        rules: identifiers of the rules that spoke.
        lost: why the mutant could not be made, None where it could.
        raised: traceback of the check, None where it raised nothing.
    """

    rules: frozenset[str] = frozenset()
    lost: str | None = None
    raised: str | None = None


@lru_cache(maxsize=1)
def reference_files() -> dict[str, str]:
    """Return the reference integration: path -> text, links as `MemoryTree` takes them."""
    root = Path(__file__).parents[3] / "reference_bagel"
    files = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_symlink():
            files[name] = f"-> {path.readlink()}"
        elif path.is_file():
            files[name] = path.read_text(encoding="utf-8")
    return files


def found(files: dict[str, str]) -> list[Finding]:
    """Return what all rules find in a tree."""
    project = Project(MemoryTree(files))
    return list(check_targets([Target(project, project.packages, whole=True)]).findings)


def outcomes() -> list[Outcome]:
    """Return what is found in each mutant, in the order of `all_mutants`."""
    numbers = range(len(all_mutants()))
    # Neighbours change the same file: a worker has it parsed already.
    size = -(-len(numbers) // (4 * WORKERS))
    parts = [numbers[at : at + size] for at in range(0, len(numbers), size)]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(WORKERS, mp_context=context, initializer=_parse_once) as pool:
        return [outcome for part in pool.map(_outcomes, parts) for outcome in part]


def _parse_once() -> None:
    """Keep the trees of files that no mutant changes: half of the time goes into reading them."""
    ast.parse = lru_cache(maxsize=64)(ast.parse)  # type: ignore[assignment]
    pyfile.Index = lru_cache(maxsize=64)(pyfile.Index)  # type: ignore[misc,assignment]


def _outcomes(numbers: Sequence[int]) -> list[Outcome]:
    return [_outcome(number) for number in numbers]


def _outcome(number: int) -> Outcome:
    try:
        files = all_mutants()[number].tree(reference_files())
    except Exception as error:  # an anchor that is gone, or code that does not parse
        return Outcome(lost=f"{type(error).__name__}: {error}")
    try:
        return Outcome(frozenset(finding.rule for finding in found(files)))
    except Exception:
        return Outcome(raised=traceback.format_exc(limit=-3))
