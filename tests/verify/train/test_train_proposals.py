"""What docs/proposals asks of verl-omni applies to it, and its own tests pass with it and fail without."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from test_train import ENVIRONMENT, VERL_OMNI, pytestmark  # noqa: F401  # the marks skip where nothing can be run

from scaffold.verify.rollout.environment import Environment
from scaffold.verify.rollout.platform_plugin import name_distribution
from scaffold.verify.train.run import PATH

PROPOSALS = Path(__file__).parents[3] / "docs/proposals"
TESTS = "tests/workers/rollout/rollout_vllm/test_vllm_omni_output_on_cpu.py"


@pytest.mark.train_table
def test_sound_without_images_is_taken(tmp_path: Path) -> None:
    checkout = tmp_path / "verl-omni"
    subprocess.run(["git", "clone", "--quiet", "--shared", VERL_OMNI, checkout], check=True)
    git = ["git", "-C", str(checkout), "apply", str(PROPOSALS / "sound_without_images.patch")]
    subprocess.run([*git, "--include", "tests/*"], check=True)
    before = printed(checkout, tmp_path)
    assert "3 failed" in before
    subprocess.run([*git, "--include", "verl_omni/*"], check=True)
    after = printed(checkout, tmp_path)
    assert "failed" not in after
    assert "passed" in after


def printed(checkout: Path, folder: Path) -> str:
    """What pytest prints of verl-omni's test, run where verl-omni can be imported."""
    assert isinstance(ENVIRONMENT, Environment)
    name_distribution(folder / "names", "vllm", "0.27.0+cpu")
    # The environment has no pytest: this one's comes last, so that it lends nothing else.
    code = f"import sys; sys.path.append({str(Path(pytest.__file__).parents[1])!r}); import pytest; "
    code += f"sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', {TESTS!r}]))"
    done = subprocess.run(
        [ENVIRONMENT.folder / "bin/python", "-c", code],
        cwd=checkout,
        env={"PYTHONPATH": f"{folder / 'names'}:{checkout}:{PATH}", "OMNI_SCAFFOLD_TRAIN": "patches"},
        capture_output=True,
        text=True,
    )
    return done.stdout or done.stderr
