"""The README of an example is not reached by a link in ``docs/examples/``, or not listed in ``docs/index.md``.

The documentation is built from ``docs/``; READMEs of examples are part of it through symbolic links. One without a
link, or with a link that no toctree names, is not in the documentation, and a check of the repository fails. So it does
where a link leads to a README that is not there.

Instead: link it from ``docs/examples/<model>/`` and list the link in the Examples toctree of ``docs/index.md``.
"""

from __future__ import annotations

import posixpath

from scaffold.check.example import Example
from scaffold.check.finding import Span
from scaffold.check.model.checked_tree import CheckedTree
from scaffold.check.model.package import Package
from scaffold.check.model.source import UndecodableError
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC512"
NAME = "unlinked-example"
SEVERITY = "warning"
CHECKLIST = ("W3",)
APPLIES = Applies(diffusion=None)
HELP = "link the README from docs/examples/ and list the link in docs/index.md"
DOCS, INDEX = "docs/examples", "docs/index.md"


def check(package: Package) -> Hits:
    """Follow the links of ``docs/examples`` to the READMEs beside the launch scripts."""
    project = package.project
    links = _links(project)
    if not links:
        return
    folders = dict.fromkeys(script.folder for script in package.launch_scripts)
    for folder in folders:
        readme = project.source(f"{folder}/README.md")
        broken = [link for link, target in links.items() if target == f"{folder}/README.md"]
        if readme is None and broken:
            script = next(script for script in package.launch_scripts if script.folder == folder)
            text = f"{broken[0]} links to {folder}/README.md, which is not there"
            yield Hit(script, Span(1, 1, 1, 1), text, "write the README: what is trained, on which data, how to run it")
        if readme is None or readme.path.count("/") < 3:
            continue
        found = [link for link, target in links.items() if target == readme.path]
        if not found:
            yield Hit(readme, Span(1, 1, 1, 1), "no link in docs/examples/ leads to this README")
        elif not any(_listed(package, link) for link in found):
            text = f"docs/index.md does not list {found[0].removeprefix('docs/')}, the link to this README"
            yield Hit(readme, Span(1, 1, 1, 1), text)


def _links(project: CheckedTree) -> dict[str, str]:
    found = {}
    for path in project.files(DOCS, ".md"):
        target = project.tree.link(path)
        if target is not None:
            found[path] = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return found


def _listed(package: Package, link: str) -> bool:
    """Whether the index names a link; True where the index cannot be read.

    What ``new`` wrote has a patch, which brings the line where the release has such an index.
    """
    index = package.project.source(INDEX)
    if index is None:
        return not (package.project.rendered and package.facts.text("target", "docs_index") == INDEX)
    try:
        return link.removeprefix("docs/").removesuffix(".md") in index.plain_text
    except UndecodableError:
        return True


FAILING = (
    Example("no README", readme=None, launch=("#!/usr/bin/env", "«»#!/usr/bin/env")),
    Example(
        "the link leads to another README",
        docs_link="-> ../../../examples/flowgrpo_trainer/README.md\n",
        readme=("# Toy FlowGRPO", "«»# Toy FlowGRPO"),
    ),
    Example(
        "not in the index",
        docs_index=("examples/toy/flowgrpo_trainer_toy.md\n", ""),
        readme=("# Toy FlowGRPO", "«»# Toy FlowGRPO"),
    ),
)
PASSING = (Example("a release without such links", docs_link=None),)
