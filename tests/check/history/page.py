"""Writes docs/history.md from bugs.toml: ``python tests/check/history/page.py``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tomli

BUGS = Path(__file__).with_name("bugs.toml")
PAGE = Path(__file__).resolve().parents[3] / "docs" / "history.md"
REPOSITORY = "https://github.com/verl-project/verl-omni"
HEAD = """\
# Bugs of verl-omni's own history

<!-- Written by `python tests/check/history/page.py` from tests/check/history/bugs.toml. -->

Every fix in verl-omni's history (all commits and pull requests up to `a1139baf`, 2026-08-22) that concerns an
integration: a pipeline package, what the agent loop gives it, its scripts and configurations. Models that are not
diffused, rewards, documentation and CI are left out.

The list was made before any rule was changed for it. It says who has to see the bug: a rule of `check`, where the text
tells for any author; a contract of `verify`, where only running does; or neither, and why. For each rule,
`tests/check/test_history.py` exports the commit before the fix and the fix: the rule has to report the first and to be
silent on the second. It runs where `VERL_OMNI_HISTORY` or `VERL_OMNI_SRC` names a repository with the commits
(`git fetch origin 'refs/pull/*/head:refs/pull/*'` brings those that were squashed away).
"""


def bugs() -> list[dict[str, Any]]:
    """Return the rows, oldest fix first."""
    return list(tomli.loads(BUGS.read_text(encoding="utf-8"))["bug"])


def page() -> str:
    """Return the text of docs/history.md."""
    rows = bugs()
    told = [row for row in rows if row["decides"] == "rule"]
    first = sum(row["before"] == "found" for row in told)
    measured = sum(row["decides"] == "contract" for row in rows)
    lines = [HEAD]
    lines.append(
        f"{len(rows)} bugs: {len(told)} for rules, of which {first} were found when the list was made and all are now; "
        f"{measured} for contracts; {len(rows) - len(told) - measured} for neither.\n"
    )
    for decides, title, columns in (
        ("rule", "The text tells", ("found at first",)),
        ("contract", "Running tells", ()),
        ("neither", "Neither can tell", ()),
    ):
        lines.append(f"## {title}\n")
        who = {"rule": "rule", "contract": "contract"}.get(decides)
        heads = ["bug", "fix", "parent", *([who] if who else []), *columns, "why" if decides != "rule" else "remarks"]
        lines.append(f"| {' | '.join(heads)} |")
        lines.append("|" + "---|" * len(heads))
        for row in rows:
            if row["decides"] == decides:
                lines.append(f"| {' | '.join(_cells(row))} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _cells(row: dict[str, Any]) -> list[str]:
    pull = f"[#{row['pull']}]({REPOSITORY}/pull/{row['pull']}) " if "pull" in row else ""
    fix = f"{pull}[`{row['fix'][:8]}`]({REPOSITORY}/commit/{row['fix']})"
    cells = [row["bug"], fix + (" (in its branch)" if row.get("branch") else ""), f"`{row['parent'][:8]}`"]
    if row["decides"] == "rule":
        cells += [f"[{row['who']}](rules.md#{row['who'].lower()})", "yes" if row["before"] == "found" else "no"]
    elif row["decides"] == "contract":
        cells.append(f"`{row['who']}`")
    return [*cells, row.get("why", "")]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
