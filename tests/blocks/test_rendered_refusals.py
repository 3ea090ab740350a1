"""What neither a contract of `verify` measures of the golden package nor its own tests: `rendered_refusals`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from installed import require

from scaffold.files.resources import kit_root

require("torch")


def test_the_golden_package_refuses_what_it_cannot_do(
    reference: Path, tmp_path: Path, warm_python: Callable[..., Any]
) -> None:
    tree = Path(shutil.copytree(reference, tmp_path / "tree", symlinks=True))
    tests = Path(__file__).with_name("rendered_refusals.py")
    shutil.copy(tests, tree / "tests/pipelines/test_refusals.py")
    done = warm_python(
        ["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/pipelines"],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(kit_root()), str(tree)]), "LOCAL_RANK": "0"},
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert tests.read_text().count("\ndef test_") > 20
    assert "skipped" not in done.stdout
