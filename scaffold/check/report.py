"""The outcome of a check."""

# Annotations are evaluated here: a NamedTuple would compile each that is left as a string, at every start.

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from scaffold.check.finding import Finding


class Restriction(NamedTuple):
    """What settings of a ``pyproject.toml`` keep out of a report.

    Attributes:
        file: the ``pyproject.toml``, as the user is shown it.
        off: rules that do not run at all.
        rules: how many would, without the settings.
        left_out: findings of rules that do not run in some files.
        baseline: the file that names known findings, if the settings have one.
    """

    file: str
    off: int
    rules: int
    left_out: int = 0
    baseline: str | None = None

    @property
    def told(self) -> str:
        """One sentence that says so."""
        parts = [f"{self.off} of {self.rules} rules are off"] if self.off else []
        parts += (
            [f"{self.left_out} finding{'s' * (self.left_out != 1)} left out in some files"] if self.left_out else []
        )
        parts += [f"findings of {self.baseline} are known"] if self.baseline else []
        return f"{', '.join(parts) or 'nothing is left out'} by {self.file}; --isolated looks at none of it"


class CheckReport(NamedTuple):
    """What was found.

    Attributes:
        findings: sorted by path, line, column and rule; suppressed ones are not among them.
        files: how many files were looked at.
        packages: names of the packages that were checked, sorted.
        suppressed: how many findings comments hide.
        baselined: how many findings a baseline hides.
        restricted: what settings keep out of it, for each file that has some.
    """

    findings: tuple[Finding, ...]
    files: int
    packages: tuple[str, ...]
    suppressed: int = 0
    baselined: int = 0
    restricted: tuple[Restriction, ...] = ()

    @property
    def errors(self) -> int:
        """Number of findings of severity ``error``."""
        return sum(finding.severity == "error" for finding in self.findings)

    @property
    def warnings(self) -> int:
        """Number of findings of severity ``warning``."""
        return len(self.findings) - self.errors

    @property
    def statistics(self) -> list[tuple[str, str, int]]:
        """Rule, severity and number of findings, the most frequent first."""
        counted = Counter((finding.rule, str(finding.severity)) for finding in self.findings)
        return sorted(((*what, count) for what, count in counted.items()), key=lambda row: (-row[2], row[0]))

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not self.findings


def fingerprints(findings: Iterable[Finding]) -> dict[Finding, str]:
    """Return a name for each finding that survives moved lines and moved folders.

    It is made of the rule, the path inside the tree, the message and the text of the line without its indentation;
    of several that agree in all of this, each has its number in the order of the file.
    """
    import hashlib

    seen: Counter[str] = Counter()
    names = {}
    for finding in sorted(findings):
        plain = "\0".join((finding.rule, finding.key, finding.message, " ".join(finding.source.split())))
        seen[plain] += 1
        names[finding] = hashlib.sha256(f"{plain}\0{seen[plain]}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return names
