"""The tests that verl-omni checkouts have for their pipelines, with a rendered package beside the hand-written ones."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from older_engines import VLLM, install, layer

from scaffold.upstream.cache import cache_root
from scaffold.verify import rollout
from scaffold.verify.rollout.environment import MARKER, Environment, find_environment
from scaffold.verify.rollout.platform.omni_scaffold_cpu import VARIABLE

VERL_OMNI = os.environ.get("VERL_OMNI_SRC", "")
ENVIRONMENT = "0.27.0rc1"
# Release of verl-omni, the vllm-omni that it pins, tests of its own in tests/pipelines, and at least how many of ours.
RELEASES = {
    "v0.1.0": ("0.22.0", 25, 13),
    "v0.2.0": ("0.24.0", 111, 17),
    "main": ("0.27.0rc1", 168, 14),
}
pytestmark = [
    pytest.mark.skipif(not VERL_OMNI, reason="VERL_OMNI_SRC names no verl-omni checkout"),
    pytest.mark.rollout,
    pytest.mark.rollout_table,
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def environment() -> Environment:
    found = find_environment(ENVIRONMENT)
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.fixture(scope="module")
def runner(environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a test runner, which the environment of the rollout does not have."""
    folder = tmp_path_factory.mktemp("runner")
    install(environment, folder, "pytest", "pytest-asyncio")
    return folder


@pytest.mark.parametrize("release", RELEASES)
def test_tests_of_the_checkout_end_as_without_the_rendered_package(
    environment: Environment, runner: Path, tmp_path: Path, scaffold_cli: Callable[..., Any], release: str
) -> None:
    version, count, ours = RELEASES[release]
    checkout = write_checkout(tmp_path / "verl-omni", release)
    engine = [layer(environment, version)] if version in VLLM else []

    def outcomes(name: str) -> dict[str, str]:
        report = tmp_path / f"{name}.xml"
        run_tests(environment, [*engine, runner], checkout, report)
        return {
            f"{case.get('classname')}::{case.get('name')}": next(
                (part.tag for part in case if part.tag in ("failure", "error", "skipped")), "passed"
            )
            for case in ElementTree.parse(report).iter("testcase")
        }

    before = kept(digest(environment, engine, checkout), lambda: outcomes("before"))
    assert list(before.values()).count("passed") >= count
    scaffold_cli("new", "bagel_scaffold", "--pipeline", "BagelPipeline", "--verl-omni", checkout).success()
    after = outcomes("after")
    rendered = {test for test in after if "bagel_scaffold" in test}
    assert {test: after[test] for test in after.keys() - rendered} == before
    assert {test: after[test] for test in rendered if after[test] != "passed"} == {}
    assert len(rendered) >= ours


def kept(name: str, run: Callable[[], dict[str, str]]) -> dict[str, str]:
    """Outcomes of a checkout by itself, from the cache where the same was run before: nothing of ours is in it."""
    path = cache_root() / "outcomes" / f"{name}.json"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        made = path.with_suffix(f".{os.getpid()}")
        made.write_text(json.dumps(run()), encoding="utf-8")
        made.replace(path)
    return json.loads(path.read_text(encoding="utf-8"))


def digest(environment: Environment, engine: list[Path], checkout: Path) -> str:
    """Return a digest of the checkout, the environment, and what makes its tests run on a CPU."""
    found = hashlib.sha256(f"{(environment.folder / MARKER).read_text()}{engine}".encode())
    for folder, pattern in ((checkout, "*"), (Path(rollout.__file__).parent, "*.py"), (Path(__file__).parent, "o*.py")):
        for path in sorted(path for path in folder.rglob(pattern) if path.is_file()):
            found.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return found.hexdigest()


def write_checkout(root: Path, release: str) -> Path:
    """Write the files of a release; those of ``main`` as they lie in the checkout that is named."""
    if release == "main":
        return Path(shutil.copytree(VERL_OMNI, root, symlinks=True, ignore=shutil.ignore_patterns(".git")))
    root.mkdir()
    archive = root.with_suffix(".tar")
    made = subprocess.run(
        ["git", "-C", VERL_OMNI, "archive", "--output", str(archive), release], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip(f"{VERL_OMNI} has no tag {release}")
    shutil.unpack_archive(archive, root)
    return root


def run_tests(environment: Environment, first: list[Path], checkout: Path, report: Path) -> None:
    """Run ``tests/pipelines`` as the checkout's own continuous integration does, on a CPU."""
    path = [*first, Path(__file__).parent, Path(__file__).parents[2], checkout]
    settings = {
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TORCH_COMPILE_DISABLE": "1",
        VARIABLE: "1",
    }
    command = [environment.python, "-m", "pytest", "-q", "--asyncio-mode=auto", "tests/pipelines"]
    command += ["-p", "own_tests_plugin", "-p", "no:cacheprovider", "--junitxml", report]
    run = subprocess.run(
        [*map(str, command)], cwd=checkout, env={**os.environ, **settings}, capture_output=True, text=True, timeout=1200
    )
    # 1 is that of failing tests, which are compared one by one.
    assert run.returncode in (0, 1), run.stdout[-4000:] + run.stderr[-2000:]
