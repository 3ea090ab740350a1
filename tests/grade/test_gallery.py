"""docs/gallery.html: every pipeline of every supported version, searched in a real browser."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scaffold.grade import gallery as page

DOCS = Path(__file__).resolve().parents[2] / "docs"
HOSTILE = "<img src=x onerror=\"document.title='ran'\"></script><script>document.title='ran'</script>{{ 7 * 7 }}"
ANSWERS = ("denoiser", "scheduler", "prompt", "vae")


def entry(name: str, grade: str | None, modality: str | None = "image", **more: Any) -> dict[str, Any]:
    """A row as ``list --format json`` has it."""
    verdict = {"path": "non_diffusers", "reason": f"why {name}", "confidence": "certain", "file": "a.py", "line": 7}
    found = {
        "pipeline": name,
        "module": "m",
        "registry_keys": [name],
        "grade": grade,
        "modality": modality,
        "media": [],
    }
    cfg = {"branches": 2, "scales": {"scale": 4.0}, "interval": None, "execution": "packed"}
    return {**found, "verdict": verdict, "left": [], "media": [], "cfg": cfg, **{name: {} for name in ANSWERS}, **more}


def table(version: str, *rows: dict[str, Any]) -> dict[str, Any]:
    upstream = {"version": version, "registry_keys": len(rows), "classes": len(rows)}
    return {"schema": 1, "upstream": upstream, "pipelines": list(rows)}


TABLES = (
    table(
        "2.0",
        entry("AlphaPipeline", "complete"),
        entry("BetaPipeline", "partial", "video", left=[{"what": "the schedule", "at": "b.py:3"}]),
        entry(
            "UnreadPipeline", None, None, cfg={"branches": None, "scales": None, "interval": None, "execution": None}
        ),
        entry(HOSTILE, "refused", HOSTILE, media=[HOSTILE], left=[{"what": HOSTILE, "at": None}]),
        entry("L" * 300, "unproven", needs=[{"what": "results that are sound", "at": "verl_omni/server.py:680"}]),
    ),
    table("1.0", entry("AlphaPipeline", "partial"), entry("GammaPipeline", "diffusers", "video")),
)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of a few pipelines, made of files as the command line takes them."""
    folder = tmp_path_factory.mktemp("gallery")
    files = []
    for number, one in enumerate(TABLES):
        files.append(folder / f"{number}.json")
        files[-1].write_text(json.dumps(one))
    path = folder / "gallery.html"
    path.write_text(page.gallery([json.loads(file.read_text()) for file in files]), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser(python_file: Callable[[Path, str], Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A browser; without one there is nothing to look with."""
    module = python_file(Path(__file__).resolve().parents[1] / "verify" / "report_browser.py", "browser_of_the_gallery")
    executable = module.find_chromium()
    if executable is None:
        pytest.skip("no Chromium on PATH; `make browser` installs it where apt and root are at hand")
    with module.Browser(executable, tmp_path_factory.mktemp("profile")) as started:
        yield started


def visible(browser: Any) -> list[str]:
    rows = "[...document.querySelectorAll('tbody tr')].filter((row) => row.offsetHeight > 0)"
    shown: list[str] = json.loads(browser.evaluate(f"JSON.stringify({rows}.map((row) => row.children[0].innerText))"))
    return shown


def enter(browser: Any, **values: str) -> None:
    for name, value in values.items():
        field = f"document.querySelector('[name={name}]')"
        browser.evaluate(
            f"{field}.value = {json.dumps(value)}; {field}.dispatchEvent(new Event('input', {{bubbles: true}}))"
        )


def test_search(browser: Any, small: Path) -> None:
    browser.open(small)
    assert visible(browser)[0] == "AlphaPipeline"
    assert len(visible(browser)) == 5, "the newest version alone"
    enter(browser, version="")
    assert len(visible(browser)) == 7
    enter(browser, words="VIDEO pipeline")
    assert visible(browser) == ["BetaPipeline", "GammaPipeline"]
    assert browser.evaluate("document.querySelector('output').textContent") == "2 pipelines"
    enter(browser, grade="diffusers")
    assert visible(browser) == ["GammaPipeline"]
    enter(browser, words="no such words")
    assert visible(browser) == []
    assert browser.errors == []


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_it_opens_clean_and_fits(browser: Any, small: Path, width: int, dark: bool) -> None:
    for path in (small, DOCS / "gallery.html"):
        browser.open(path, width=width, dark=dark)
        assert browser.evaluate("window.innerWidth") == width
        assert browser.errors == []
        assert [request for request in browser.requests if request != "data:,"] == []
        assert browser.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
        tree = browser.call("Accessibility.getFullAXTree")["nodes"]
        roles = [node["role"]["value"] for node in tree if not node["ignored"]]
        assert roles.count("rowheader") == len(visible(browser)) > 0


def test_hostile_text_is_text(browser: Any, small: Path) -> None:
    browser.open(small)
    assert browser.evaluate("document.title") == "omni-scaffold: every pipeline"
    assert browser.evaluate("document.scripts.length") == 1
    assert browser.evaluate("document.images.length") == 0
    assert HOSTILE in browser.evaluate("document.querySelector('tr[data-grade=refused] th').textContent")


def test_without_scripts_everything_is_there(browser: Any, small: Path) -> None:
    browser.open(small, scripts=False)
    tree = browser.call("Accessibility.getFullAXTree")["nodes"]
    names = {str(node.get("name", {}).get("value", "")) for node in tree}
    assert {"AlphaPipeline", "GammaPipeline", "vllm-omni 1.0"} <= names
    assert not [node for node in tree if node["role"]["value"] == "searchbox" and not node["ignored"]]


def test_what_verl_omni_lacks_has_a_list_of_its_own(small: Path) -> None:
    text = small.read_text(encoding="utf-8")
    (found,) = re.findall(r"<summary>(\d+) that verl-omni does not carry</summary><ul><li>(.*?) <code>", text)
    assert found == ("1", "results that are sound")


def test_the_page_of_the_documentation_is_of_every_supported_version() -> None:
    """The grades of its newest version are those of docs/models.md, which a test of its own compares."""
    text = (DOCS / "gallery.html").read_text(encoding="utf-8")
    assert tuple(re.findall(r"<h2>vllm-omni (.+)</h2>", text)) == page.supported_versions()
    newest = page.supported_versions()[0]
    rows = re.findall(rf'data-grade="(\w+)" data-version="{re.escape(newest)}"><th[^>]*>(.*?)</th>', text)
    models = (DOCS / "models.md").read_text(encoding="utf-8")
    graded = {}
    for heading in re.split(r"^## ", models, flags=re.MULTILINE)[1:]:
        for name in re.findall(r"^\| \[?`(\w+)`", heading, re.MULTILINE):
            graded[name] = heading.split()[0].lower()
    assert len(rows) > 50
    shown = {html.unescape(name): grade for grade, name in rows}
    assert {name: shown[name] for name in graded if name in shown} == {n: g for n, g in graded.items() if n in shown}
    assert len(graded.keys() & shown.keys()) > 50
    style = (Path(page.__file__).parent / "page" / "gallery.css").read_text()
    assert style in text, "the page is of another state: `make docs`"
