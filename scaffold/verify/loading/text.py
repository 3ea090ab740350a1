"""What loading showed, for a person."""

from __future__ import annotations

from collections.abc import Iterator

from scaffold.checkpoint import fold
from scaffold.checkpoint.fold import natural_key
from scaffold.remap.table import Row
from scaffold.remap.text import print_checks, print_rows, wide_console
from scaffold.terminal.printable import printable
from scaffold.verify.loading.proof import LoadingProof

SHOWN = 10
NOT_TAKEN = "the loader takes no notice of it"


def print_loading(proof: LoadingProof) -> None:
    """Print what was filled by what, the checks, and what is wrong."""
    console = wide_console()
    console.print(printable(f"package {proof.package} loads {proof.source}"), style="bold")
    console.print(proof.summary)
    for note in proof.notes:
        console.print(f"note: {printable(note)}")
    if proof.module is not None:
        print_rows(rows_of(proof), console)
    print_checks(proof.outcomes, console)
    for line in finding_lines(proof):
        console.print(line, style="red")
    said = "the package loads this checkpoint" if proof.holds else "the package does not fit this checkpoint"
    console.print(said, style="bold")


def finding_lines(proof: LoadingProof) -> list[str]:
    """The findings, causes first, as lines."""
    lines = [printable(finding.line) for finding in proof.findings[:SHOWN]]
    more = len(proof.findings) - len(lines)
    return [*lines, f"and {more} more"] if more else lines


def rows_of(proof: LoadingProof) -> Iterator[Row]:
    """Keys folded by layer with what they became, then those that became nothing."""
    for source in fold(proof.targets):
        first = proof.targets[source.names[0]]
        alike = all(len(proof.targets[name]) == len(first) for name in source.names)
        for place in range(len(first)) if alike else ():
            targets = fold(proof.targets[name][place] for name in source.names)
            note = f"part {place + 1} of {len(first)}" if len(first) > 1 else None
            shown = targets[0].pattern if len(targets) == 1 else f"{targets[0].pattern}, …"
            yield Row(source.pattern, shown, source.count, note=note)
        if not alike:
            yield Row(source.pattern, f"{first[0]}, …", source.count)
    groups: dict[str, list[str]] = {}
    for name in sorted(proof.skipped, key=natural_key):
        groups.setdefault(proof.reasons.get(name, NOT_TAKEN), []).append(name)
    for reason, names in groups.items():
        for part in fold({name.partition(".")[0] for name in names}):
            of_part = [name for name in names if name.partition(".")[0] in part.names]
            if len(of_part) > 3 * part.count:
                yield Row(f"{part.pattern}.", None, len(of_part), reason)
            else:
                yield from (Row(row.pattern, None, row.count, reason) for row in fold(of_part))
