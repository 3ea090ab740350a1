"""The rules read vllm-omni where it is at hand: here it never is, whatever the machine has, unless a test says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from scaffold.check.example import BASE, base_tree


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that is the cache of downloads for the test; it is not there yet."""
    cache = tmp_path / "cache-of-downloads"
    monkeypatch.setenv("OMNI_SCAFFOLD_CACHE", str(cache))
    return cache


@pytest.fixture(scope="session")
def is_measured() -> Callable[[str], bool]:
    """Return a function that says whether `verify` has a contract, or a scenario, of a name."""
    from scaffold.verify import contracts
    from scaffold.verify.rollout import scenarios

    folders = [Path(room.__path__[0]) for room in (contracts, scenarios)]
    code = "\n".join(file.read_text(encoding="utf-8") for folder in folders for file in folder.glob("*.py"))

    def measured(name: str) -> bool:
        # Scenarios measure log-probs and velocities, under their own name with a suffix.
        scenario = name.removeprefix("rollout-").removesuffix("-velocity")
        return f'"{name}"' in code or f'"{scenario}"' in code

    return measured


@pytest.fixture
def write_base() -> Callable[..., Path]:
    """Return a function that writes a tree of the examples below a folder."""

    def write(root: Path, base: str = BASE) -> Path:
        for name, text in base_tree(base).items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if text.startswith("-> "):
                path.symlink_to(text[3:].strip())
            else:
                path.write_text(text, encoding="utf-8")
        return root

    return write
