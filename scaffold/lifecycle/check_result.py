"""The rules of ``check``, run on what an update has written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scaffold.lifecycle.text import plain_console

if TYPE_CHECKING:
    from scaffold.lifecycle.package import ScaffoldedPackage

SHOWN = 10


def print_check(package: ScaffoldedPackage) -> bool:
    """Print what the rules find in a package; False where one of the findings is an error."""
    import importlib

    try:
        rules: Any = importlib.import_module("scaffold.check")
    except ImportError:
        return True  # an installation without the rules
    if not hasattr(rules, "check_paths"):
        return True
    findings: list[Any] = list(rules.check_paths([package.root / package.path]).findings)
    console = plain_console()
    for finding in findings[:SHOWN]:
        line = f"{finding.path}:{finding.line}: {finding.severity}: {finding.message} [{finding.rule}]"
        console.print(line, markup=False)
    if len(findings) > SHOWN:
        console.print(f"and {len(findings) - SHOWN} more; run `omni-scaffold check {package.from_here}`")
    return not any(str(getattr(finding.severity, "value", finding.severity)) == "error" for finding in findings)
