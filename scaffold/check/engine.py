"""Runs rules over trees: findings, suppressions, order."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from scaffold.check.catalogue import chosen, find_rule, fits
from scaffold.check.finding import Finding, Fix, Span
from scaffold.check.model.python import PythonFile
from scaffold.check.report import CheckReport, Restriction
from scaffold.check.rule import Hit, Rule
from scaffold.check.settings import Settings
from scaffold.check.suppression import Comments
from scaffold.check.targets import Target, find_targets, shown, shown_path
from scaffold.errors import ScaffoldError
from scaffold.limits.cpu_limit import CpuLimit, collector_off

ALL, EACH = 300.0, 60.0
"""Seconds of processor time for all rules, and for one on one package: far more than the largest checkout takes."""


def check_paths(
    paths: Sequence[Path | str],
    *,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    settings: Settings | None = None,
) -> CheckReport:
    """Check packages, checkouts or single files.

    Args:
        paths: what to look at.
        select: rules to run: identifiers, names or prefixes; those of the settings by default, else all.
        ignore: rules to leave out, besides those of the settings.
        settings: used instead of ``[tool.omni-scaffold]`` of the nearest ``pyproject.toml``.

    Raises:
        ScaffoldError: a path is not there or holds no integration; a selector fits no rule; the settings are wrong.
    """
    return check_targets(find_targets([Path(path) for path in paths], settings), select=select, ignore=ignore)


# Syntax trees are many small objects, all alive until the end: garbage collection would take half of the time.
@collector_off()
def check_targets(targets: Sequence[Target], *, select: Sequence[str] = (), ignore: Sequence[str] = ()) -> CheckReport:
    """Check what the paths stand for; see `check_paths`."""
    findings: set[Finding] = set()
    suppressed = files = 0
    packages: list[str] = []
    cpu_limit = CpuLimit(ALL, EACH)
    restricted: list[Restriction] = []
    for target in targets:
        settings = target.settings
        rules = chosen(tuple(select) or settings.select, (*settings.ignore, *ignore))
        comments = Comments(target, rules)
        everything = set(_findings(target, rules, cpu_limit))
        found = {finding for finding in everything if not _left_out(target, finding)}
        left = {finding for finding in found if not comments.hides(finding)}
        suppressed += len(found) - len(left)
        findings |= left
        for rule in rules:
            if rule.scope == "comments":
                about = [
                    _finding(target, rule, hit)
                    for hit in _run(rule, comments, cpu_limit)
                    if target.covers(hit.file.shown)
                ]
                everything |= set(about)
                found |= {finding for finding in about if not _left_out(target, finding)}
                findings |= found.intersection(about)
        if settings.file is not None:
            without = len(chosen(tuple(select), tuple(ignore)))
            baseline = None if settings.baseline is None else shown(settings.baseline)
            left_out = len(everything) - len(found)
            told = Restriction(shown(settings.file), without - len(rules), without, left_out, baseline)
            restricted += [told] if told[1] or told[3:] != (0, None) else []
        packages += [package.name for package in target.packages]
        files += len(comments.files)
    return CheckReport(
        tuple(sorted(findings)), files, tuple(sorted(packages)), suppressed, restricted=tuple(restricted)
    )


def _left_out(target: Target, finding: Finding) -> bool:
    """Whether the settings leave the rule out in the file."""
    selectors = target.settings.ignored_at(target.project.tree.locate(finding.key))
    return bool(selectors) and any(fits(selector, find_rule(finding.rule)) for selector in selectors)


def _findings(target: Target, rules: Iterable[Rule], cpu_limit: CpuLimit) -> Iterator[Finding]:
    related: set[str] | None = None
    for rule in rules:
        if rule.scope == "comments":
            continue
        if rule.scope == "project":
            if related is None and not target.whole:
                related = {file.shown for package in target.packages for file in package.related}
            for hit in _run(rule, target.project, cpu_limit):
                if target.whole or hit.file.shown in (related or ()):
                    if target.covers(hit.file.shown):
                        yield _finding(target, rule, hit)
            continue
        for package in target.packages:
            if rule.applies.to(package):
                for hit in _run(rule, package, cpu_limit):
                    if target.covers(hit.file.shown):
                        yield _finding(target, rule, hit)


def _run(rule: Rule, subject: object, cpu_limit: CpuLimit) -> list[Hit]:
    try:
        # Rules read texts and trees in different ways, so CPU time is the only common limit.
        with cpu_limit.work():
            return list(rule.check(subject))
    except ScaffoldError:
        raise
    except Exception as error:
        # A rule that fails is an error: ignoring it would make the package look clean.
        place = getattr(subject, "name", "the tree")
        reason = "nested too deeply" if isinstance(error, RecursionError) else f"{type(error).__name__}: {error}"
        hint = f"leave the rule out with --ignore {rule.id}, and report it"
        raise ScaffoldError(f"{rule.id} fails on {place}: {reason}", hint=hint) from error


def _finding(target: Target, rule: Rule, hit: Hit) -> Finding:
    file = hit.file
    if isinstance(hit.at, Span):
        span = hit.at
    else:
        assert isinstance(file, PythonFile)
        assert isinstance(hit.at, ast.AST)
        span = file.span(hit.at)
    at = file.shown_span(span)
    fix = None
    if rule.fix is not None and hit.fixable and not file.partial:
        fix = Fix(rule.safety, lambda: _texts(target, rule, hit), lambda path: _source(target, path))
    return Finding(
        path=shown_path(target.project, file.shown),
        line=at.line,
        column=at.column,
        end_line=at.end_line,
        end_column=at.end_column,
        rule=rule.id,
        message=hit.message,
        severity=rule.severity,
        help=hit.help or rule.help,
        checklist=", ".join(rule.checklist),
        fix=fix,
        source=file.shown_text(span.line),
        key=file.shown,
    )


def _texts(target: Target, rule: Rule, hit: Hit) -> dict[str, str]:
    assert rule.fix is not None
    result = rule.fix(hit)
    if result is None:
        return {}
    texts: Mapping[str, str] = {hit.file.path: result} if isinstance(result, str) else result
    return {shown_path(target.project, path): text for path, text in texts.items()}


def _source(target: Target, path: str) -> str:
    files = target.project.read_files
    return next((file.text for file in files if shown_path(target.project, file.path) == path), "")
