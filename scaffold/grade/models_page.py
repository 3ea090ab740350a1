"""Writes docs/models.md: ``python -m scaffold.grade.models_page > docs/models.md``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scaffold.algorithms import ALGORITHMS
from scaffold.errors import RefusedError
from scaffold.grade import COMPLETE, PARTIAL, REFUSED, UNPROVEN, grade_of, specify
from scaffold.grade.layout import layouts
from scaffold.grade.proof import Figures, agreements, figures, proofs
from scaffold.inspect import inspect_pipeline
from scaffold.inspect.table import registered_classes
from scaffold.render import derive_names
from scaffold.render.names import model_name
from scaffold.spec import SpecRequest
from scaffold.target import default_profile

if TYPE_CHECKING:
    from scaffold.inspect import Report
    from scaffold.upstream import UpstreamSource

VERSION = "0.30.0"
DIFFUSERS = "diffusers"

_INTRODUCTION = f"""\
# What `new` makes of each pipeline

Every pipeline of vllm-omni {VERSION}, without a checkpoint at hand. `python -m scaffold.grade.models_page` writes this
page; a test compares it.

| grade | what `new` does |
|---|---|
| `complete` | Renders a package that `check` and both levels of `verify` pass. Where diffusers loads the denoiser \
nothing is ported: training has diffusers' own class. |
| `unproven` | Renders a package of which nothing is left to write. No test has shown that both levels of `verify` \
pass: run `verify --level rollout`; or verl-omni does not carry what it needs, and its agent loop refuses every \
request and says where. |
| `partial` | Renders a package in which something is left to write. What the source establishes is written, the \
rest is listed in the package's README with the line to port, and raises `NotImplementedError` in its place. |
| `refused` | Writes nothing and leaves with exit code 3: not supported here, for the reason given. |
| `diffusers` | Writes nothing and leaves with exit code 3: diffusers loads the denoiser, and how its steps can be \
replaced was not established. |

The grade stands in `scaffold.toml`, under `[grade]`. That `verify` passes is shown by the tests for this
version and verl-omni main; with another one the same package is `unproven`. `check` reports what a partial package
lacks.
"""

_FIGURES = """\
`rollout` is the largest difference of a log-prob between rollout and training at level `rollout`, in float32,
`training` that in verl-omni's trainer at level `train`, where it was run ([train.md](train.md)), `checks` how many
checks of levels `contract` and `rollout` pass, where that was counted; the others are skipped and say why. `module` is
the largest relative difference between the velocities of training's module and of the pipeline's own in the engine, in
float32, where it was kept; `lines` counts the package's Python, as a project has it. The command is
`omni-scaffold verify PACKAGE --level rollout --format json`; `python benchmarks/figures.py` runs it for every pipeline
and keeps the figures in `scaffold/presets/proofs/figures.toml`, which the tests measure again."""
_AGREEMENTS = """\
Compared with the real pipeline, in float32 and at a tiny size: `module` is the largest difference between the imported
denoiser and the pipeline's, over the largest value, `loop` that of what the pipeline makes, between its own update and
the rollout's step without noise, `log-prob` the largest difference between a rollout in the pipeline's loop, with
noise, and training. The figures stand in `scaffold/presets/proofs/agreements.toml`; `tests/port` and
`tests/grade/loops` measure them again. Where verl-omni main does not carry what a package needs, its own place is
named:"""
_LAYOUTS = """\
Each package loads the layout of the released checkpoint: a test writes all its files at full size, sparse, and
`from_pretrained` takes them. What stands in `scaffold/presets/layouts/` and `manifests/` is not copied from the Hub;
`python benchmarks/manifest.py PIPELINE` writes a manifest, with `--checkpoint REPO` that of the released files. Where
it comes from:"""
_ALGORITHMS = """\
A grade is that of FlowGRPO; the others take the same record of a rollout, and [algorithms.md](algorithms.md) says of
which a training was run."""
_TOLD = {"tensors": "Names and shapes", "dtypes": "Dtypes", "files": "Files", "configs": "Configuration"}


@dataclass(frozen=True)
class Row:
    """One pipeline; ``missing`` and ``needs`` are the entries of ``[grade]``, ``recorded`` whether calls travel."""

    key: str
    grade: str
    reason: str
    place: str
    denoiser: str
    missing: tuple[dict[str, Any], ...] = ()
    needs: tuple[dict[str, Any], ...] = ()
    recorded: bool = False


def rows(source: UpstreamSource) -> Iterator[Row]:
    """Yield a row for each class that a version registers, in the order of its registry."""
    for key in registered_classes(source):
        yield row(key, inspect_pipeline(source, key), source)


def row(key: str, report: Report, source: UpstreamSource) -> Row:
    """Return what `new` would make of one pipeline."""
    verdict, evidence = report.verdict, report.fact("verdict.path").evidence
    place = f"{evidence[0].file}:{evidence[0].line}" if evidence else ""
    if verdict["path"] == "refused":
        return Row(key, REFUSED, verdict["reason"], place, "")
    try:
        spec = specify(SpecRequest(report, derive_names(model_name(key)), default_profile()), source).spec
    except RefusedError as error:
        if verdict["path"] != DIFFUSERS:
            raise
        return Row(key, DIFFUSERS, error.message.partition(" is not supported here: ")[2] or error.message, place, "")
    recorded = bool(spec.value("inputs.recorded"))
    if grade_of(spec) == COMPLETE:
        method = str(spec.value("upstream.denoiser_method") or "")
        return Row(key, COMPLETE, verdict["reason"], place, method, recorded=recorded)
    denoiser = str(spec.value("port.class") or "")
    reason = str(spec.value("grade.reason")).removeprefix(f"{report.upstream.pipeline}: ")
    missing, needs = spec.value("grade.missing") or (), spec.value("grade.needs") or ()
    return Row(key, grade_of(spec), reason, place, denoiser, tuple(missing), tuple(needs), recorded)


def models_page(source: UpstreamSource) -> str:
    """Return the page."""
    found = list(rows(source))
    lines = [_INTRODUCTION]
    for grade in (COMPLETE, UNPROVEN, PARTIAL, REFUSED, DIFFUSERS):
        mine = [entry for entry in found if entry.grade == grade]
        lines += [f"## {grade.capitalize()} ({len(mine)})", ""]
        lines += list(_TABLES.get(grade, _table)(mine)) if mine else ["None."]
        lines += ["", *_other_releases(), "", *_checkpoints(mine)] if grade == COMPLETE else []
        lines.append("")
    return "\n".join([*lines, *_by_algorithm(found)]).rstrip() + "\n"


def _by_algorithm(found: list[Row]) -> Iterator[str]:
    """What can be trained by which algorithm, and by which grade."""
    yield "## By algorithm"
    yield ""
    grades = (COMPLETE, UNPROVEN, PARTIAL)
    yield f"| `--algorithm` | {' | '.join(grades)} | not, since a rollout of it records no calls |"
    yield f"|{'---|' * (len(grades) + 2)}"
    for name, algorithm in ALGORITHMS.items():
        able = [entry for entry in found if entry.grade in grades and (algorithm.scores_steps or entry.recorded)]
        counts = [str(sum(entry.grade == grade for entry in able)) for grade in grades]
        others = [f"`{entry.key}`" for entry in found if entry.grade in grades and entry not in able]
        yield f"| `{name}` | {' | '.join(counts)} | {', '.join(others)} |"
    yield ""
    yield _ALGORITHMS


def _complete(entries: list[Row]) -> Iterator[str]:
    """The complete pipelines with their figures."""
    yield "| pipeline | rollout | training | checks | module | lines | reason | place |"
    yield "|---|---|---|---|---|---|---|---|"
    proven = proofs().get(VERSION, {})
    # A pipeline comes once more for each task beside the usual one.
    for entry, key in [(e, k) for e in entries for k in (e.key, *(k for k in proven if k.startswith(f"{e.key} ")))]:
        found = figures().get(VERSION, {}).get(key, Figures())
        steps = f" in {found.train_steps} steps" if found.train_steps else ""
        cells = [_figure(found.log_prob), f"{_figure(found.train_log_prob)}{steps}", str(found.passed or "")]
        cells += [_figure(found.velocity), str(found.lines or "")]
        yield f"| `{key}` | {' | '.join(cells)} | {_cell(entry.reason)} | {_short(entry.place)} |"
    yield ""
    yield _FIGURES


def _checkpoints(entries: list[Row]) -> Iterator[str]:
    """What is known of the checkpoint of each complete pipeline, and who says so."""
    yield _LAYOUTS
    yield ""
    loaded: list[str] = []
    for entry in entries:
        layout = layouts().get(entry.key)
        if layout is None:  # a test asks for the others
            loaded.append(f"`{entry.key}`")
            continue
        headers, parts = layout.headers(), len(layout.weight_files)
        held = f"{len(headers.entries):,} tensors, {headers.total_bytes:,} bytes"
        where = f"`{layout.weight_files[0]}`" + (f" and {parts - 1} more" if parts > 1 else "")
        yield f"- `{layout.repository}` for {entry.key}: {held} in {where}."
        for told in ("tensors", "dtypes", "files", "configs"):
            yield f"  {_TOLD[told]}: {_cell(layout.origin[told])}."
    if loaded:
        yield f"- as diffusers has it, which loads the denoiser: {', '.join(loaded)}."


def _other_releases() -> Iterator[str]:
    """What tests have run with other releases."""
    yield "With other releases of vllm-omni, tests have run both levels of `verify` on:"
    yield ""
    yield "| vllm-omni | pipelines |"
    yield "|---|---|"
    for version, found in proofs().items():
        if version != VERSION:
            yield f"| {version} | {', '.join(f'`{key}`' for key in found)} |"


def _table(entries: list[Row]) -> Iterator[str]:
    yield "| pipeline | reason | place |"
    yield "|---|---|---|"
    for entry in entries:
        yield f"| `{entry.key}` | {_cell(entry.reason)} | {_short(entry.place)} |"


def _unproven(entries: list[Row]) -> Iterator[str]:
    """The pipelines of which nothing is left to write, with what was compared and what verl-omni lacks."""
    yield "| pipeline | denoiser | module | loop | log-prob | why it is not complete | place |"
    yield "|---|---|---|---|---|---|---|"
    for entry in entries:
        found = agreements().get(VERSION, {}).get(entry.key)
        figures = map(_figure, (found.module, found.loop, found.log_prob) if found else (None, None, None))
        cells = [f"`{entry.denoiser}`", *figures, _cell(entry.reason), _short(entry.place)]
        yield f"| {_named(entry, entry.needs)} | {' | '.join(cells)} |"
    yield ""
    yield _AGREEMENTS
    for entry in (entry for entry in entries if entry.needs):
        yield ""
        yield f"### {entry.key}"
        yield ""
        for need in entry.needs:
            yield f"- {_cell(need['what'])}: in the way stands `{need['at']}`"


def _partial(entries: list[Row]) -> Iterator[str]:
    yield "| pipeline | denoiser | why it is not complete | to write | needs of verl-omni |"
    yield "|---|---|---|---|---|"
    for entry in entries:
        denoiser = f"`{entry.denoiser}`" if entry.denoiser else "unknown"
        needs = ", ".join(
            f"`{place.rpartition('/')[2]}`" for place in dict.fromkeys(need["at"] for need in entry.needs)
        )
        cells = [_named(entry, entry.missing), denoiser, _cell(entry.reason), str(len(entry.missing)), needs]
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield f"What a person must still write, with the place of vllm-omni {VERSION} to port it from, relative to"
    yield "`vllm_omni/` and, where no other folder is named, `vllm_omni/diffusion/models/`. Where verl-omni main"
    yield "does not carry it, its own place is named:"
    for entry in (entry for entry in entries if entry.missing):
        yield ""
        yield f"### {entry.key}"
        yield ""
        needed = {need["key"]: need["at"] for need in entry.needs}
        for missing in entry.missing:
            stands = f"; in the way stands `{needed[missing['key']]}`" if missing["key"] in needed else ""
            yield f"- {_cell(missing['what'])}: {_short(missing['at'])}{stands}"
        whats = {missing["what"] for missing in entry.missing}
        for need in (need for need in entry.needs if need["what"] not in whats):
            yield f"- nothing to write, but {_cell(need['what'])}: in the way stands `{need['at']}`"
        compared = agreements().get(VERSION, {}).get(entry.key)
        if compared is not None:
            module = "" if compared.module is None else f"module {_figure(compared.module)}, "
            figures = f"{module}loop {_figure(compared.loop)}, log-prob {_figure(compared.log_prob)}"
            yield f"- compared as those above, the loop around a prediction that is written down: {figures}"


def _named(entry: Row, told: tuple[dict[str, Any], ...]) -> str:
    """The pipeline's key, linked to its section where there is one."""
    return f"[`{entry.key}`](#{entry.key.lower()})" if told else f"`{entry.key}`"


_TABLES = {COMPLETE: _complete, UNPROVEN: _unproven, PARTIAL: _partial}


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.1e}".replace("e-0", "e-") if value else "0"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _short(place: str) -> str:
    return f"`{place.removeprefix('vllm_omni/').removeprefix('diffusion/models/')}`" if place else ""


if __name__ == "__main__":
    from scaffold.upstream import locate

    sys.stdout.write(models_page(locate(VERSION)))
