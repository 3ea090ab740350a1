"""Names for findings that survive moved lines and moved folders."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable

from scaffold.check.finding import Finding


def fingerprints(findings: Iterable[Finding]) -> dict[Finding, str]:
    """Return a name for each finding.

    It is made of the rule, the path inside the tree, the message and the text of the line without its indentation;
    of several that agree in all of this, each has its number in the order of the file.
    """
    seen: Counter[str] = Counter()
    names = {}
    for finding in sorted(findings):
        plain = "\0".join((finding.rule, finding.key, finding.message, " ".join(finding.source.split())))
        seen[plain] += 1
        names[finding] = hashlib.sha256(f"{plain}\0{seen[plain]}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return names
