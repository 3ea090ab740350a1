"""A package follows the code of the denoiser that it imports, and no other under the same number."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from overruled import overrule

from scaffold.spec import LOCK_NAME, read_spec
from scaffold.upstream import UpstreamSource, locate

pytestmark = [pytest.mark.upstream, pytest.mark.xdist_group("ported packages")]
VERSION = "0.30.0"
DENOISER = "vllm_omni/diffusion/models/omnigen2/omnigen2_transformer.py"
PORTED = "verl_omni/pipelines/omnigen2_flow_grpo/omnigen2_denoiser.py"
SPEC = "verl_omni/pipelines/omnigen2_flow_grpo/scaffold.toml"
BEFORE, AFTER = "theta=10000", "theta=12345"


def digest_of(source: UpstreamSource) -> str:
    return hashlib.sha256(source.read(DENOISER).encode()).hexdigest()[:32]


@pytest.fixture(scope="module")
def other(upstream_copies: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a vllm-omni that calls itself 0.30.0 and has another denoiser."""
    copy = upstream_copies.Copy(locate(VERSION), tmp_path_factory.mktemp("other") / "vllm", ("omnigen2",))
    (copy.root / "vllm_omni/_version.py").write_text(f"version = '{VERSION}'\n")
    copy.replace(DENOISER, BEFORE, AFTER)
    root: Path = copy.root
    return root


@pytest.fixture(scope="module")
def trees(other: Path, scaffold_cli: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("trees")
    for name, source in (("own", VERSION), ("other", str(other))):
        scaffold_cli("new", "omnigen2", "--vllm-omni", source, "--patch", "--out", folder / name).success()
    return {name: folder / name for name in ("own", "other")}


@pytest.fixture
def tree(trees: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    def copy(name: str) -> Path:
        return Path(shutil.copytree(trees[name], tmp_path / name, symlinks=True))

    return copy


def test_update_reads_the_folder_that_is_named(
    tree: Callable[[str], Path], other: Path, scaffold_cli: Callable[..., Any]
) -> None:
    out = tree("own")
    assert digest_of(locate(VERSION)) in (out / PORTED).read_text()
    scaffold_cli("update", out, "--vllm-omni", other)
    assert digest_of(locate(str(other))) in (out / PORTED).read_text()


@pytest.mark.parametrize("flags", [(), ("--spec",), ("--vllm-omni", VERSION)])
def test_other_code_under_the_same_number_is_not_taken_for_the_packages_own(
    tree: Callable[[str], Path], other: Path, scaffold_cli: Callable[..., Any], flags: tuple[str, ...]
) -> None:
    out = tree("other")
    # As a package has it whose versions were told apart by their number alone.
    stored = read_spec(out / SPEC).spec
    stored.sections["upstream"]["version"] = VERSION
    (out / SPEC).write_text(stored.to_toml())
    (out / SPEC).with_name(LOCK_NAME).write_text(stored.to_lock())
    line = scaffold_cli("update", out, *flags).refusal(2)
    assert "ported from other code than that of vllm-omni 0.30.0" in line
    assert digest_of(locate(str(other))) in (out / PORTED).read_text()


def test_the_packages_own_code_is_known_by_its_version(
    tree: Callable[[str], Path], scaffold_cli: Callable[..., Any]
) -> None:
    out = tree("other")
    assert str(read_spec(out / SPEC).spec.value("upstream.version")).startswith(f"{VERSION}+vllm.g")
    assert "nothing to do" in scaffold_cli("update", out).success()
    scaffold_cli("update", out, "--vllm-omni", VERSION)
    assert digest_of(locate(VERSION)) in (out / PORTED).read_text()


def test_update_goes_on_where_the_code_is_named(
    tree: Callable[[str], Path], other: Path, scaffold_cli: Callable[..., Any]
) -> None:
    out = tree("other")
    scaffold_cli("update", out, "--from", other, "--vllm-omni", VERSION)
    assert digest_of(locate(VERSION)) in (out / PORTED).read_text()


def test_drift_shows_the_lines_whose_code_changed(
    tree: Callable[[str], Path], other: Path, scaffold_cli: Callable[..., Any]
) -> None:
    done = scaffold_cli(
        *("drift", "OmniGen2Pipeline", "--from", VERSION, "--to", other, "--package", tree("own")),
        *("--format", "json"),
    )
    found = json.loads(done.out)
    assert done.code == 1
    assert found["affected"]
    assert found["facts"] == []
    assert [(entry["file"], entry["gone"]) for entry in found["executed"]] == [(DENOISER, False)]
    assert found["executed"][0]["changed"] == ["OmniGen2Transformer2DModel.__init__"]
    (hunk,) = found["ported"]
    assert hunk["file"] == PORTED
    assert any(digest_of(locate(VERSION)) in line for line in hunk["before"])
    assert any(digest_of(locate(str(other))) in line for line in hunk["after"])


def test_nothing_is_affected_by_the_same_code(tree: Callable[[str], Path], scaffold_cli: Callable[..., Any]) -> None:
    done = scaffold_cli("drift", "OmniGen2Pipeline", "--to", VERSION, "--package", tree("own"))
    assert done.code == 0
    assert "nothing to do" in done.out


@pytest.mark.parametrize("value", ["complete", "partial"])
def test_package_of_either_grade_is_rendered_from_its_spec(
    tree: Callable[[str], Path], scaffold_cli: Callable[..., Any], value: str
) -> None:
    out = tree("own")
    overrule(out / SPEC, "grade.value", f'"{value}"')
    assert scaffold_cli("update", out, "--spec").code == 0
    assert digest_of(locate(VERSION)) in (out / PORTED).read_text()


def test_grade_that_does_not_exist_is_refused(tree: Callable[[str], Path], scaffold_cli: Callable[..., Any]) -> None:
    out = tree("own")
    overrule(out / SPEC, "grade.value", '"rubbish"')
    assert "grade.value is 'rubbish'" in scaffold_cli("update", out, "--spec").refusal(2)


def test_a_package_imports_the_denoiser(tree: Callable[[str], Path], scaffold_cli: Callable[..., Any]) -> None:
    out, digest = tree("own"), digest_of(locate(VERSION))
    text = (out / PORTED).read_text()
    assert f'"{DENOISER}": "{digest}",\n' in text
    assert "class " not in text.partition('"""\n\n')[2]
    package = (out / PORTED).parent
    assert sum(len(path.read_text().splitlines()) for path in package.glob("*.py")) <= 250
    assert '_checkpointed_layers = ("OmniGen2TransformerBlock",)' in (package / "omnigen2_model.py").read_text()
    readme = next(out.glob("examples/**/README.md")).read_text()
    assert f"| `{DENOISER}` | `{digest}" in readme
    assert scaffold_cli("check", package).code == 0


def aged(out: Path) -> Path:
    """Make a package one that holds the text of its denoiser, as older ones do."""
    text = "class OmniGen2Transformer2DModel:\n    pass\n"
    (out / PORTED).write_text(text)
    stored = read_spec(out / SPEC).spec
    stored.sections["port"]["form"] = "ported"
    stored.files[PORTED] = hashlib.sha256(text.encode()).hexdigest()
    (out / SPEC).write_text(stored.to_toml())
    (out / SPEC).with_name(LOCK_NAME).write_text(stored.to_lock())
    return out


@pytest.mark.parametrize("flags", [(), ("--spec",)])
def test_update_lets_an_older_package_import(
    tree: Callable[[str], Path], scaffold_cli: Callable[..., Any], flags: tuple[str, ...]
) -> None:
    out = tree("own")
    before = {path: path.read_text() for path in out.rglob("*.py")}
    aged(out)
    done = scaffold_cli("update", out, *flags)
    assert done.code == 0
    said = "omnigen2_denoiser.py held the text of the denoiser: it imports vllm-omni's own class now"
    assert said in " ".join((done.out + done.err).split())
    assert {path: path.read_text() for path in out.rglob("*.py")} == before
    assert "nothing to do" in scaffold_cli("update", out).success()


def test_update_leaves_a_package_alone_whose_text_is_edited(
    tree: Callable[[str], Path], scaffold_cli: Callable[..., Any]
) -> None:
    out = aged(tree("own"))
    (out / PORTED).write_text((out / PORTED).read_text() + "# ours\n")
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    line = scaffold_cli("update", out).refusal(4)
    assert f"{PORTED} holds the denoiser's text and is edited here: the package is left as it is" in line
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


FORMULAS = """\"\"\"Schedule and guidance, as packages had them before the rollout carried both.\"\"\"

from verl_omni.pipelines.flow_grpo_runtime.guidance import guide_of, settings_of, velocity_of

CFG_DEFAULTS = {"guidance_scale": 4.0}
guide = guide_of(lambda c, u, guidance, sigma, schedule: u + guidance["guidance_scale"] * (c - u))
to_velocity = velocity_of(-1)
resolve_guidance = settings_of(CFG_DEFAULTS)
"""


def with_formulas(out: Path, *, recorded: bool) -> Path:
    """Make of a package what an earlier tool rendered; its formulas are not recorded where a person wrote them."""
    package = (out / SPEC).parent
    common, schedule, lock = (package / name for name in ("common.py", "omnigen2_schedule.py", LOCK_NAME))
    stored = read_spec(out / SPEC).spec
    common.write_text(FORMULAS)
    schedule.write_text("LEVELS = [1.0, 0.5]\n")
    files = dict(stored.files)
    for path, text in ((schedule, schedule.read_bytes()), (common, FORMULAS.encode() if recorded else b"unwritten")):
        files[path.relative_to(out).as_posix()] = hashlib.sha256(text).hexdigest()
    lock.write_text(replace(stored, files=files).to_lock())
    return package


def test_update_takes_formulas_away_and_says_so(tree: Callable[[str], Path], scaffold_cli: Callable[..., Any]) -> None:
    package = with_formulas(tree("own"), recorded=True)
    said = " ".join(scaffold_cli("update", package).success().split())
    assert "common.py: schedule and guidance go; the rollout carries its noise levels" in said
    assert not (package / "omnigen2_schedule.py").exists()
    assert "guide" not in (package / "common.py").read_text().replace("guidance", "").replace("guided", "")


def test_update_converts_formulas_that_a_person_wrote_once_git_has_them(
    tree: Callable[[str], Path], scaffold_cli: Callable[..., Any]
) -> None:
    out = tree("own")
    package = with_formulas(out, recorded=False)
    refused = scaffold_cli("update", package).refusal(4)
    assert "common.py: what was written in it has no reader any more" in refused
    assert "commit it" in refused
    assert (package / "common.py").read_text() == FORMULAS
    assert (package / "omnigen2_schedule.py").exists()
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "What was there")):
        subprocess.run(["git", "-C", out, "-c", "user.name=a", "-c", "user.email=a@b.c", *words], check=True)
    said = " ".join(scaffold_cli("update", package).success().split())
    assert "common.py: what was written in it is in git, and has no reader any more" in said
    assert "to_velocity" not in (package / "common.py").read_text()
    assert not (package / "omnigen2_schedule.py").exists()


def test_a_package_with_formulas_beside_another_is_named(
    tree: Callable[[str], Path], scaffold_cli: Callable[..., Any]
) -> None:
    """It runs with the runtime that it was written with, and the one that comes with the other takes its place."""
    package = with_formulas(tree("own"), recorded=True)
    (twin := package.parent / "twin_flow_grpo").mkdir()
    (twin / "common.py").write_text(FORMULAS)
    said = " ".join(scaffold_cli("update", package).success().split())
    assert "twin_flow_grpo has formulas, which the runtime that is written here does not read" in said
    assert "update" in said.partition("twin_flow_grpo has formulas")[2]
    assert "omnigen2_flow_grpo has formulas" not in said
