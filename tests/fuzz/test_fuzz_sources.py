"""Mutated sources, packages, specs, headers and answers of the Hub: an answer or one line, in bounded time and memory.

``OMNI_SCAFFOLD_FUZZ_SECONDS`` is the processor time it takes, ``OMNI_SCAFFOLD_FUZZ_SEED`` where it starts; a case that
fails is written below ``build/fuzz/``, or ``OMNI_SCAFFOLD_FUZZ_OUT``.
"""

from __future__ import annotations

import ast
import os
import random
import resource
from dataclasses import dataclass
from pathlib import Path

import pytest
from mutation import mutated
from readers import Overlay, cases, corpus, problem, processor_seconds

from scaffold.inspect import inspect_pipeline
from scaffold.upstream import locate, resolve_pipeline

MEMORY = 4 << 30
REPOSITORY = Path(__file__).resolve().parents[2]


LEAST = 6  # tried however slow the machine is


@dataclass
class Count:
    """Cases of one reader, and how many of them it refused."""

    tried: int = 0
    refused: int = 0


def fuzz(place: Path, seconds: float, seed: int, out: Path) -> tuple[dict[str, Count], list[str]]:
    """Return how many cases each reader had, and the files of those that failed."""
    chance, counts, failed = random.Random(seed), dict[str, Count](), list[str]()
    end = processor_seconds() + seconds
    for number, (reader, text, action) in enumerate(cases(corpus(REPOSITORY / "reference_bagel", place), chance)):
        wrong = problem(action)
        count = counts.setdefault(reader.split()[0], Count())
        count.tried += 1
        count.refused += wrong == ""
        if wrong:
            out.mkdir(parents=True, exist_ok=True)
            file = out / f"{seed}-{number}.py"
            said = "\n".join(f"# {line}" for line in f"{reader}\n{wrong}".splitlines())
            file.write_text(f"{said}\n{text}\n", encoding="utf-8", errors="backslashreplace")
            failed.append(f"{file}: {reader}: {wrong.strip().splitlines()[-1]}")
        if processor_seconds() > end and number >= LEAST:
            break
    return counts, failed


@pytest.mark.upstream
@pytest.mark.slow
def test_mutated_sources(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seconds = float(os.environ.get("OMNI_SCAFFOLD_FUZZ_SECONDS", "4"))
    seed = int(os.environ.get("OMNI_SCAFFOLD_FUZZ_SEED", "17"))
    out = Path(os.environ.get("OMNI_SCAFFOLD_FUZZ_OUT", REPOSITORY / "build/fuzz"))
    limit = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, limit[1]))
    try:
        counts, failed = fuzz(tmp_path, seconds, seed, out)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limit)
    with capsys.disabled():
        told = (f"{reader} {count.tried} ({count.refused} refused)" for reader, count in sorted(counts.items()))
        print(f"\nseed {seed}: {', '.join(told)}")
    assert sum(count.tried for count in counts.values()) >= LEAST
    assert not failed, "\n".join(failed)


@pytest.mark.upstream
def test_predictions_that_are_never_returned_are_no_traceback() -> None:
    source, key = locate("0.27.0rc1"), "StableDiffusionXLPipeline"
    path = resolve_pipeline(source, key).file
    text = source.read(path).replace(
        "        result = self.unet(**kwargs)\n        return result[0]\n", "        self.unet(**kwargs)\n"
    )
    assert text != source.read(path)
    report = inspect_pipeline(Overlay(source, path, text), key)
    assert report.failures == {}
    assert report.value("cfg.branches") in (None, 1)


def test_a_mutation_changes_something_and_can_be_repeated() -> None:
    tree, other = (ast.parse((REPOSITORY / path).read_text()) for path in ("scaffold/cli/app.py", "scaffold/errors.py"))
    before = ast.dump(tree)
    seen = {ast.dump(mutated(tree, other, random.Random(seed))) for seed in range(20)}
    assert len(seen) > 15
    assert ast.dump(tree) == before
    assert ast.dump(mutated(tree, other, random.Random(3))) == ast.dump(mutated(tree, other, random.Random(3)))


def test_problems_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong() -> None:
        raise KeyError("x")

    assert "KeyError" in (problem(wrong) or "")
    monkeypatch.setattr("readers.SECONDS", 0.0)
    assert "processor time" in (problem(lambda: sum(range(100_000))) or "")
