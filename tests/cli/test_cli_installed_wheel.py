"""What the wheel carries; `make installs` installs it, and renders the reference with it."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from scaffold.files.resources import templates_root

REPOSITORY = Path(__file__).resolve().parents[2]
# One worker builds the wheel.
pytestmark = [pytest.mark.upstream, pytest.mark.slow, pytest.mark.xdist_group("wheel")]


def pip(*arguments: object) -> None:
    """Run pip; a test without a package index is skipped."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and any(sign in done.stderr for sign in ("NewConnectionError", "ProxyError", "name resolution")):
        pytest.skip("the package index cannot be reached")
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--quiet", "--no-deps", "--wheel-dir", folder, REPOSITORY)
    (built,) = folder.glob("omni_scaffold-*.whl")
    return built


def test_wheel_holds_templates_presets_and_kit_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for path in templates_root().rglob("*.jinja"):
        assert f"scaffold/_templates/{path.relative_to(templates_root()).as_posix()}" in names
    for needed in ("presets/bagel.toml", "presets/manifests/bagel-7b-mot.ema.json", "py.typed"):
        assert f"scaffold/{needed}" in names
    for folder in ("target/profiles/main.toml", "verify/kit/verl_omni/pipelines/model_base.py", "skill/SKILL.md"):
        assert f"scaffold/{folder}" in names
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"scaffold"}
    assert not [name for name in names if "__pycache__" in name or name.startswith("scaffold/templates")]


def test_links_and_pictures_of_the_index_page_are_whole(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    metadata = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    page = archive.read(metadata).decode().partition("\n\n")[2]
    assert page.startswith("# omni-scaffold\n")
    links = dict(re.findall(r"(!?\[[^]]*\])\(([^)]+)\)", page))
    assert len(links) > 20
    assert [link for link in links.values() if not link.startswith("https://")] == []
    pictures = [link for text, link in links.items() if text.startswith("!")]
    assert pictures
    assert all(link.startswith("https://raw.githubusercontent.com/") for link in pictures)
    for link in links.values():
        _, here, path = link.partition("/omni-scaffold/omni-scaffold/")
        assert not here or (REPOSITORY / path.removeprefix("blob/").removeprefix("main/")).exists(), link
