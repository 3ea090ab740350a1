"""The page as text: everything is on it, nothing is fetched, no text becomes markup."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from report_examples import HOSTILE, all_of, all_statuses, check, hostile, odd_numbers

from scaffold.terminal.printable import printable
from scaffold.verify.report.html import PAGE, html_report
from scaffold.verify.result import VerifyReport

# Elements without an end tag.
VOID = {"meta", "link", "br", "circle", "path"}


class Page(HTMLParser):
    """Elements with attributes and text, checked to be well nested."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] not in ("style", "script"):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]


REPORTS = {
    "all statuses": all_statuses(),
    "odd numbers": odd_numbers(),
    "hostile": hostile(),
    "fail": all_of("fail"),
    "skip": all_of("skip"),
    "pass": all_of("pass"),
    "empty": VerifyReport("p", "kit", ()),
}


@pytest.mark.parametrize("name", REPORTS)
def test_every_contract_is_on_the_page_with_status_and_reason(name: str) -> None:
    page = Page(html_report(REPORTS[name]))
    bodies = [body for body in page.all("tbody") if "data-status" in body]
    assert [body["data-status"] for body in bodies] == [entry.status for entry in REPORTS[name].checks]
    for entry in REPORTS[name].checks:
        assert printable(entry.id) in page.text
        assert printable(entry.reason) in page.text


@pytest.mark.parametrize("name", REPORTS)
def test_nothing_is_fetched(name: str) -> None:
    page = Page(html_report(REPORTS[name]))
    for tag, attributes in page.elements:
        assert tag not in ("img", "iframe", "object", "embed", "form", "base")
        assert not {"src", "srcset", "action", "data", "xlink:href"} & set(attributes)
        assert re.match(r"data:,$|#[a-z]+(-\d+)?$", attributes.get("href", "data:,"))
        assert "url(" not in attributes.get("style", "")
    assert not re.search(r"url\(|@import", (PAGE / "page.css").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", REPORTS)
def test_only_the_pages_own_script_may_run(name: str) -> None:
    text = html_report(REPORTS[name])
    page = Page(text)
    assert len(page.all("script")) == 1
    script = text[text.index("<script>") + len("<script>") : text.index("</script>")]
    assert script == (PAGE / "page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = [meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}'" in policy
    assert not any(attribute.startswith("on") for _, attributes in page.elements for attribute in attributes)


def test_hostile_text_stays_text() -> None:
    text = html_report(hostile())
    page = Page(text)
    for attack in HOSTILE:
        assert printable(attack) in page.text
    assert "{{ 7 * 191 }}" in page.text
    assert "1337" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    text.encode("utf-8")


def test_ids_are_unique_and_references_lead_somewhere() -> None:
    page = Page(html_report(all_statuses()))
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    named = {attributes["aria-labelledby"] for _, attributes in page.elements if "aria-labelledby" in attributes}
    linked = {attributes["href"][1:] for attributes in page.all("a")}
    broken = {name for name in linked if name.startswith("contract-")}
    assert named | linked <= set(ids)
    assert broken == {"contract-3", "contract-8"}


def test_tables_have_captions_and_headers_and_drawings_have_names() -> None:
    page = Page(html_report(all_statuses()))
    assert len(page.all("caption")) == len(page.all("table"))
    assert all("scope" in head for head in page.all("th"))
    assert all("aria-hidden" in svg or (svg["role"] == "img" and "aria-labelledby" in svg) for svg in page.all("svg"))


def test_values_are_placed_between_floor_and_limit() -> None:
    text = html_report(all_statuses())
    row = text[text.index('<code>batch-singles</code></span>\n<span class="track"') :]
    row = row[: row.index("</li>")]
    floor = float(re.findall(r'class="floor" style="width:([\d.]+)%', row)[0])
    limit = float(re.findall(r'class="beyond" style="left:([\d.]+)%', row)[0])
    value = float(re.findall(r'class="dot pass" style="left:([\d.]+)%', row)[0])
    assert 0 < floor < value < limit < 100
    # 3.1e-7 between 1.2e-7 and 1e-5, on a logarithmic axis.
    assert (value - floor) / (limit - floor) == pytest.approx(0.2146, abs=1e-3)


def test_what_is_on_no_axis_is_named_with_its_reason() -> None:
    text = Page(html_report(odd_numbers())).text
    assert "failed without a measurement nothing-measured" in text
    assert "passed, and no number tells it no-number" in text
    assert (
        "pass: measured 0 where 0 is the limit (steps); a logarithmic axis has no room for that alone zero-of-zero"
        in text
    )
    assert "nan limit 1e-6" in text
    assert "no place on the axis" in text
    skipped = Page(html_report(all_of("skip"))).text
    assert "skipped, so nothing was measured contract-0 , contract-1 , contract-2" in skipped
    assert "All 3 contracts were skipped: nothing is verified." in skipped


def test_curves_say_what_they_do_not_draw() -> None:
    text = Page(html_report(odd_numbers())).text
    assert "The curves differ in length: a has 4, b has 2." in text
    assert "a: 2 of 4 values are not finite and not drawn." in text
    assert "b: 2 of 2 values are not finite and not drawn." in text
    assert "recorded values by step" not in text
    assert "No contract of this run recorded values by step" in Page(html_report(all_of("pass"))).text


def test_curves_are_drawn_where_their_values_are() -> None:
    rising = check("up", value=1.0, limit=1.0, unit="absolute", series={"a": [0.0, 1.0, 2.0], "b": [0.0, 1.0, 2.1]})
    text = html_report(VerifyReport("p", "kit", (rising,)))
    drawing = text[text.index('class="drawing"') :]
    circles = re.findall(r'<circle class="point c0" cx="([\d.]+)" cy="([\d.]+)"', drawing)
    (x0, y0), (x1, y1), (x2, y2) = [(float(x), float(y)) for x, y in circles]
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.02)
    assert y0 > y1 > y2
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.02)
    heights = [float(y) for y in re.findall(r'<circle class="distance" cx="[\d.]+" cy="([\d.]+)"', drawing)]
    limit = float(re.findall(r'<path class="limit" d="M58 ([\d.]+)H350"', drawing)[0])
    assert len(heights) == 3
    assert heights[0] == heights[1] > heights[2] > limit
    labels = sorted(float(y) for y in re.findall(r'<text class="left" x="52" y="([\d.]+)"', drawing))
    assert min(b - a for a, b in pairwise(labels)) >= 10
    for number in ("0", "1", "2", "2.1"):
        assert f'<td class="number">{number}</td>' in drawing


def test_no_coordinate_is_lost_to_an_odd_number() -> None:
    drawn = html_report(odd_numbers())
    for attribute in re.findall(r' (?:d|cx|cy|x|y|style)="([^"]*)"', drawn[drawn.index("</style>") :]):
        assert not re.search(r"nan|inf|None", attribute)


def luminance(colour: str) -> float:
    channels = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_contrast_of_text_and_marks_in_both_schemes() -> None:
    style = (PAGE / "page.css").read_text(encoding="utf-8")
    light, dark = (
        dict(re.findall(r"--(\w+): (#\w{6});", block)) for block in re.findall(r":root \{(.*?)\}", style, re.S)
    )
    assert light.keys() == dark.keys()
    for colours in (light, dark):
        for ground in ("page", "raised"):
            for name, least in {
                "ink": 7,
                "soft": 4.5,
                "pass": 4.5,
                "fail": 4.5,
                "skip": 4.5,
                "c1": 3,
                "c2": 3,
                "c3": 3,
            }.items():
                one, other = sorted((luminance(colours[name]), luminance(colours[ground])))
                assert (other + 0.05) / (one + 0.05) >= least, (name, ground)
        # A dot may lie in the zone of failure.
        one, other = sorted((luminance(colours["fail"]), luminance(colours["zone"])))
        assert (other + 0.05) / (one + 0.05) >= 3
