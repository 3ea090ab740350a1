"""Where the parts of an integration lie: in a checkout of verl-omni, or in a project of their own.

Templates say paths and dotted names as a checkout has them; a layout tells what they are in its tree.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scaffold.files.resources import RUNTIME

PIPELINES = "verl_omni/pipelines"
SOURCES = "src"
BESIDE, INSTALLED = "beside", "installed"
# verl-omni's header of licence, which a project has on what holds text of vllm-omni's alone: the rest is its owner's.
_LICENCE = re.compile(
    r"\A# Copyright \d+ Bytedance Ltd\. and/or its affiliates\n(?:#.*\n)+\n*"
    r"(?![\s\S]*\b(?:Derived from|Taken over from|as it is installed)\b)"
)
DOCS = "https://github.com/verl-project/verl-omni/blob/main/docs/"


@dataclass(frozen=True)
class Layout:
    """One kind of tree.

    Attributes:
        name: ``checkout`` or ``project``, as ``target.layout`` of a spec says it.
        packages: folder that holds packages, from the root.
        prefix: what stands before a package's name where it is imported.
        launch: folder of launch scripts and their configurations; ``{model}`` stands for the model's name.
        data: folder of data scripts.
        smoke: folder of the smoke test.
        unit: folder of the CPU test.
        readme: the model's page.
        external: whether verl-omni has to be told which module registers the adapters.
    """

    name: str
    packages: str
    prefix: str
    launch: str
    data: str
    smoke: str
    unit: str
    readme: str
    external: bool

    def package_folder(self, package: str) -> str:
        """Return the folder of a package, from the root."""
        return f"{self.packages}/{package}"

    def module(self, package: str) -> str:
        """Return the dotted name under which a package is imported."""
        return f"{self.prefix}{package}"

    def root(self, folder: Path) -> Path:
        """Return the root of the tree in which a package lies."""
        return folder.parents[self.packages.count("/") + 1]

    def holds(self, folder: Path) -> bool:
        """Whether a package's folder lies where this layout has packages."""
        parts = self.packages.split("/")
        return list(folder.parts[-len(parts) - 1 : -1]) == parts


CHECKOUT = Layout(
    "checkout",
    PIPELINES,
    "verl_omni.pipelines.",
    "examples/flowgrpo_trainer/{model}/",
    "examples/flowgrpo_trainer/data_process/",
    "tests/special_e2e/",
    "tests/pipelines/",
    "examples/flowgrpo_trainer/{model}/README.md",
    external=False,
)
PROJECT = Layout(
    "project", SOURCES, "", "scripts/", "scripts/", "tests/smoke/", "tests/unit/", "README.md", external=True
)
LAYOUTS = {layout.name: layout for layout in (CHECKOUT, PROJECT)}


def layout_of(target: Mapping[str, Any] | None) -> Layout:
    """Return the layout that a spec's section ``target`` names; one without a name is of a checkout."""
    return LAYOUTS.get(str((target or {}).get("layout", CHECKOUT.name)), CHECKOUT)


def layout_at(folder: Path) -> Layout | None:
    """Return the layout in whose place a package's folder lies; None where it is none's."""
    return next((layout for layout in LAYOUTS.values() if layout.holds(folder)), None)


def own_runtime(target: Mapping[str, Any] | None) -> bool:
    """Whether a spec's package has the runtime beside it, not installed as a distribution."""
    return layout_of(target) is CHECKOUT and (target or {}).get("runtime") != INSTALLED


class Move:
    """Brings paths and texts of a checkout into a layout.

    Args:
        layout: where to.
        model: ``names.model``.
        package: ``names.package``.
        beside: whether the runtime lies beside the package.
    """

    def __init__(self, layout: Layout, model: str, package: str, *, beside: bool) -> None:
        self.layout = layout
        self._paths: list[tuple[str, str]] = []
        self._texts: list[tuple[re.Pattern[str], str]] = []
        if layout is not CHECKOUT:
            pairs = [
                (CHECKOUT.readme, layout.readme),
                (CHECKOUT.launch, layout.launch),
                (CHECKOUT.data, layout.data),
                (CHECKOUT.smoke, layout.smoke),
                (CHECKOUT.unit, layout.unit),
                (CHECKOUT.package_folder(package), layout.package_folder(package)),
            ]
            self._paths = [(old.format(model=model), new.format(model=model)) for old, new in pairs]
            self._texts += [(_whole(old), new) for old, new in self._paths]
            self._texts.append((_whole(CHECKOUT.module(package)), layout.module(package)))
            self._texts.append((re.compile(r"(?<=\]\()(?:\.\./)+docs/"), DOCS))
            self._texts.append((_LICENCE, ""))
        if not beside:
            run = re.escape(f"{CHECKOUT.package_folder(RUNTIME)}/")
            self._texts.append((re.compile(rf"(?<=python3 ){run}(\w+)\.py\b"), rf"-m {RUNTIME}.\1"))
            self._texts.append((_whole(CHECKOUT.module(RUNTIME)), RUNTIME))

    def path(self, path: str) -> str:
        """Return where a file of a checkout lies."""
        for old, new in self._paths:
            if path == old or path.startswith(old if old.endswith("/") else f"{old}/"):
                return new + path[len(old) :]
        return path

    def text(self, text: str) -> str:
        """Return a text with the paths and dotted names of the layout."""
        for old, new in self._texts:
            text = old.sub(new, text)
        return text


def _whole(text: str) -> re.Pattern[str]:
    """A path or a dotted name that is no part of a longer one."""
    return re.compile(rf"\b{re.escape(text)}" + ("" if text.endswith("/") else r"(?!\w)"))
