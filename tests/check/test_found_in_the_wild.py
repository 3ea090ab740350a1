"""What is found in a public checkout is what was judged by hand; needs the checkout named by ``VERL_OMNI_SRC``."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import tomli

from scaffold.check import check_paths
from scaffold.check.rules_page import WILD
from scaffold.check.settings import Settings


def test_findings_are_those_judged_by_hand() -> None:
    source = os.environ.get("VERL_OMNI_SRC")
    if source is None:
        pytest.skip("VERL_OMNI_SRC names no checkout")
    judged = tomli.loads(WILD.read_text(encoding="utf-8"))
    done = subprocess.run(["git", "-C", source, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    if not done.stdout.startswith(judged["checkout"]):
        pytest.skip(f"the list was made for commit {judged['checkout']}")
    found = sorted((f.rule, f.key, f.line) for f in check_paths([Path(source)], settings=Settings()).findings)
    assert found == sorted((item["rule"], item["path"], item["line"]) for item in judged["finding"])


def test_every_finding_has_its_proof() -> None:
    judged = tomli.loads(WILD.read_text(encoding="utf-8"))
    assert judged["finding"]
    assert judged["library"]
    for item in (*judged["finding"], *judged["library"]):
        assert item["proof"].strip(), item
        assert item["path"].startswith(("verl_omni/", "examples/", "tests/")), item
        assert item["line"] > 0, item
