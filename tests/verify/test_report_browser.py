"""The page in a real browser: no script error, nothing fetched, every contract there, nothing wider than a phone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from report_browser import Browser, find_chromium
from report_examples import HOSTILE, all_of, all_statuses, check, hostile, odd_numbers

from scaffold.terminal.printable import printable
from scaffold.verify.report.destination import write_report
from scaffold.verify.result import VerifyReport

PHONE = 390
REPORTS = {
    "all_statuses": all_statuses(),
    "odd_numbers": odd_numbers(),
    "hostile": hostile(),
    "skip": all_of("skip"),
    "long": VerifyReport(
        "p" * 300,
        "kit",
        (
            check(
                "i" * 300,
                "fail",
                0.5,
                0.1,
                title="t" * 300,
                unit="u" * 300,
                reason="r" * 1000,
                series={"s" * 99: [1.0]},
            ),
        ),
        {"n" * 99: "v" * 300},
        ("c" * 300,),
    ),
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return every report as a page."""
    folder = tmp_path_factory.mktemp("pages")
    for name, report in REPORTS.items():
        write_report(report, folder / f"{name}.html")
    return {name: folder / f"{name}.html" for name in REPORTS}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Return a browser; without one there is nothing to look with."""
    executable = find_chromium()
    if executable is None:
        pytest.skip("no Chromium on PATH; `make browser` installs it where apt and root are at hand")
    with Browser(executable, tmp_path_factory.mktemp("profile")) as started:
        yield started


def overflow(browser: Browser) -> int:
    """Return how many pixels the page is wider than the screen."""
    return int(browser.evaluate("document.documentElement.scrollWidth - window.innerWidth"))


def visible(browser: Browser) -> list[str]:
    """Return the ids of the contracts in the table, as shown, in their order."""
    shown = "[...document.querySelectorAll('.contract')].filter((body) => body.offsetHeight > 0)"
    ids: list[str] = json.loads(
        browser.evaluate(f"JSON.stringify({shown}.map((b) => b.querySelector('code').innerText))")
    )
    return ids


@pytest.mark.parametrize(
    ("width", "dark"),
    [
        (1280, False),
        (PHONE, True),
        pytest.param(1280, True, marks=pytest.mark.table),
        pytest.param(PHONE, False, marks=pytest.mark.table),
    ],
)
@pytest.mark.parametrize("name", REPORTS)
def test_opens_clean(browser: Browser, pages: dict[str, Path], name: str, dark: bool, width: int) -> None:
    browser.open(pages[name], width=width, dark=dark)
    assert browser.evaluate("window.innerWidth") == width
    assert browser.errors == []
    assert [request for request in browser.requests if request != "data:,"] == []
    assert len(visible(browser)) == len(REPORTS[name].checks)
    assert overflow(browser) <= 0
    ground = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)")


@pytest.mark.parametrize("name", REPORTS)
def test_every_contract_can_be_read(browser: Browser, pages: dict[str, Path], name: str) -> None:
    browser.open(pages[name])
    text = " ".join(browser.evaluate("document.querySelector('.contracts').innerText").split())
    for entry in REPORTS[name].checks:
        assert printable(entry.id) in text
        assert printable(entry.title) in text
        assert printable(entry.reason) in text


def test_hostile_text_runs_nothing(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["hostile"])
    assert browser.evaluate("document.title") == f"verify: {HOSTILE[0]}"
    assert browser.evaluate("document.scripts.length") == 1
    assert browser.evaluate("document.images.length") == 0


def test_filter_and_sort(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["all_statuses"])
    browser.evaluate("document.querySelector('[data-show=fail]').click()")
    assert visible(browser) == ["padding-invariance", "rollout-ragged-log-prob"]
    assert browser.evaluate("document.querySelector('[role=status]').textContent") == "2 contracts shown"
    browser.evaluate("document.querySelector('[data-show=all]').click()")
    assert visible(browser) == [entry.id for entry in all_statuses().checks]

    measured = "document.querySelectorAll('.contracts thead button')[2].click()"
    browser.evaluate(measured)
    rising = visible(browser)
    assert rising[:4] == ["determinism", "lora-targets", "rollout-wide-log-prob", "batch-singles"]
    assert rising[-3:-2] == ["padding-invariance"]
    assert sorted(rising[-2:]) == ["nccl", "registration"]
    browser.evaluate(measured)
    assert visible(browser)[2] == "padding-invariance"
    assert browser.evaluate("document.querySelectorAll('.contracts thead th')[2].ariaSort") == "descending"
    assert browser.errors == []


def test_works_without_scripts(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["all_statuses"], scripts=False)
    tree = browser.call("Accessibility.getFullAXTree")["nodes"]
    names = " ".join(str(node.get("name", {}).get("value", "")) for node in tree)
    for entry in all_statuses().checks:
        assert entry.id in names
    assert not [node for node in tree if node["role"]["value"] == "button" and not node["ignored"]]


@pytest.mark.parametrize("width", [1280, PHONE])
def test_the_table_is_a_table_to_a_screen_reader(browser: Browser, pages: dict[str, Path], width: int) -> None:
    browser.open(pages["all_statuses"], width=width)
    tree = browser.call("Accessibility.getFullAXTree")["nodes"]
    roles = [node["role"]["value"] for node in tree if not node["ignored"]]
    assert roles.count("rowheader") >= len(all_statuses().checks)
    assert roles.count("columnheader") >= 7
    images = [
        node["name"]["value"] for node in tree if node["role"]["value"] in ("image", "img") and not node["ignored"]
    ]
    assert any(name.startswith("rollout-wide-log-prob: rollout log-prob, training log-prob by step") for name in images)


def test_the_browser_sees_what_it_is_here_to_see(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "bad.html"
    path.write_text(
        "<meta name=viewport content='width=device-width,initial-scale=1'><img src='http://example.invalid/x.png'>"
        "<div style='width:2000px'>x</div><script>console.warn('hm'); nothing()</script>",
        encoding="utf-8",
    )
    browser.open(path, width=PHONE)
    assert any("nothing is not defined" in error for error in browser.errors)
    assert any("console.warning" in error for error in browser.errors)
    assert browser.requests == ["http://example.invalid/x.png"]
    assert browser.evaluate("document.documentElement.scrollWidth") > PHONE
