"""Which contracts of `verify` fail for a mutant: ``python tests/check/matrix.py [NAME…]`` measures rows that name some.

Prints one line a row and ends with 1 where a contract that a row names passes. ``--every`` runs all contracts of level
`contract` but those of FSDP, to see which fail. One process at a time; a host that has torch is forked for each.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from mutants import PACKAGE, Mutant, mutants, reference_files

ROOT = Path(__file__).resolve().parents[2]


def failing(mutant: Mutant, select: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the contracts that fail for a mutant, with the reason.

    Args:
        mutant: the row.
        select: contracts to run; all but those of FSDP and of another diffusers by default.
    """
    from scaffold.verify.catalogue import catalogue
    from scaffold.verify.run import verify

    here = f"schedule-diffusers-{version('diffusers')}"
    every = [entry.id for entry in catalogue() if not entry.id.startswith("fsdp")]
    chosen = select or tuple(name for name in every if name == here or not name.startswith("schedule-diffusers"))
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        for path, text in mutant.tree(reference_files()).items():
            if path.startswith(("verl_omni/", "examples/")) and not text.startswith("-> "):
                Path(folder, path).parent.mkdir(parents=True, exist_ok=True)
                Path(folder, path).write_text(text, encoding="utf-8")
        report = verify(Path(folder, PACKAGE), select=chosen)
    return {check.id: check.reason for check in report.checks if check.status == "fail"}


@contextmanager
def one_host() -> Iterator[None]:
    """Import torch once: hosts of `verify` are forks of one process, as its own tests do it."""
    sys.path.insert(0, str(ROOT / "tests"))
    from warm_host import WarmHost
    from warm_python import WarmPython

    from scaffold.verify import host_process

    python, cold = WarmPython(), host_process.start_host
    host_process.start_host = WarmHost(python, python).start
    try:
        yield
    finally:
        host_process.start_host = cold
        python.end()


def main(arguments: list[str]) -> int:
    """Measure the rows that are named, or all that name contracts."""
    every = "--every" in arguments
    names = [name for name in arguments if name != "--every"]
    rows = [one for one in mutants() if (one.name in names if names else one.contracts)]
    wrong = 0
    with one_host():
        for row in rows:
            found = failing(row, () if every else row.contracts)
            missing = [contract for contract in row.contracts if contract not in found]
            wrong += bool(missing)
            note = f"; passes: {', '.join(missing)}" if missing else ""
            print(f"{row.name}: {', '.join(found) or 'nothing'}{note}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
