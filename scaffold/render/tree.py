"""From the folder of templates to the tree of files."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from scaffold.errors import ScaffoldError
from scaffold.files.layout import CHECKOUT, Layout, Move, layout_of, own_runtime
from scaffold.files.resources import runtime_root, templates_root
from scaffold.limits.cpu_limit import CpuLimit
from scaffold.render.names import validate_model
from scaffold.render.rendered import RenderedFile
from scaffold.render.runtime import version_of, with_runtime

SUFFIX = ".jinja"
LINK_SUFFIX = ".link"
BLOCKS = "blocks"
PLACEHOLDERS = ("_package_", "_model_")
CPU_SECONDS = 30.0
"""Processor time for all templates of a package: many times what the packaged ones take."""
_KIND = re.compile(r"\.(composed|ported|diffusers)(?=\.[\w.]+$)")
# Kinds of packages, each with the kind whose templates it takes where it has none of its own.
KINDS = {"composed": ("composed",), "ported": ("ported",), "diffusers": ("diffusers", "ported")}
# Templates that packages of before had a file of, which `update` and `remove` take away.
RETIRED = {"verl_omni/pipelines/_package_/_model__schedule.py.jinja"}


class HasContext(Protocol):
    """Anything with spec values, such as ``IntegrationSpec``."""

    def context(self) -> Mapping[str, Any]:
        """Return the sections that templates see."""


def render(
    spec: Mapping[str, Any] | HasContext,
    templates: Path | None = None,
    *,
    notes: list[str] | None = None,
) -> dict[str, RenderedFile]:
    """Render every template and bring the result into its final form.

    Every ``*.jinja`` outside ``blocks/`` gives the file of the same path without the suffix, with ``_package_``
    and ``_model_`` replaced; ``*.link.jinja`` gives a link; what renders to white space is left out.
    ``NAME.ported.py.jinja`` is for packages whose denoiser is ported, ``NAME.composed.py.jinja`` for composed ones;
    ``NAME.diffusers.py.jinja`` takes the place of the first where diffusers loads the denoiser.

    Args:
        spec: the sections of the spec, or an object whose ``context()`` returns them.
        templates: folder of templates; the packaged one by default.
        notes: receives one line for each check that this machine could not make.

    Returns:
        Files by POSIX path relative to the repository's root, sorted by path.

    Raises:
        ScaffoldError: a template, a value or the result is at fault; the message names template and line.
    """
    from scaffold.render.environment import Sources, environment, render_template
    from scaffold.render.formats import finish

    context = dict(spec if isinstance(spec, Mapping) else spec.context())
    root = (templates or templates_root()).resolve()
    sources = Sources(root)
    env = environment(sources)
    cpu_limit = CpuLimit(CPU_SECONDS, CPU_SECONDS)
    placeholders = _placeholders(context)
    layout, beside = layout_of(context.get("target")), own_runtime(context.get("target"))
    move = Move(layout, placeholders["_model_"], placeholders["_package_"], beside=beside)
    context["place"] = {"external": layout.external, "runtime": version_of(runtime_root()), "beside": beside}
    files: dict[str, RenderedFile] = {}
    for name in _template_names(root, _kinds(context)):
        with cpu_limit.work():
            text = render_template(env, sources, name, context)
        if not text.strip():
            continue
        path, file = _place(name, text, placeholders)
        file = replace(file, template=sources.shown(name) or name, content=move.text(file.content))
        path = move.path(path)
        if path in files:
            raise ScaffoldError(f"templates {files[path].template} and {name} both give {path}")
        files[path] = file
    files = finish(files, [] if notes is None else notes)
    return dict(sorted((with_runtime(files) if beside else files).items()))


def template_paths(
    model: str, package: str, templates: Path | None = None, layout: Layout = CHECKOUT
) -> frozenset[str]:
    """Return every path that a package of these names may have a file at, whatever its spec says.

    Args:
        model: ``names.model``.
        package: ``names.package``.
        layout: of its tree.
        templates: folder of templates; the packaged one by default.

    Raises:
        ScaffoldError: a name that no package has.
    """
    root = (templates or templates_root()).resolve()
    placeholders = _placeholders({"names": {"model": model, "package": package}})
    names = {name for kinds in KINDS.values() for name in _template_names(root, kinds)} | RETIRED
    move = Move(layout, model, package, beside=True)
    paths = (_path(name, placeholders).removesuffix(LINK_SUFFIX) for name in names)
    # What lies at the root is a project's; a checkout's own files there are nobody's to take away.
    return frozenset(move.path(path) for path in paths if layout.external or "/" in path)


def _kinds(context: Mapping[str, Any]) -> tuple[str, ...]:
    port = context.get("port")
    return KINDS["composed" if port is None else "diffusers" if port.get("form") == "diffusers" else "ported"]


def _template_names(root: Path, kinds: tuple[str, ...]) -> list[str]:
    names = (path.relative_to(root).as_posix() for path in root.rglob(f"*{SUFFIX}") if path.is_file())
    marked = [(name, _KIND.search(name)) for name in names if not name.startswith(f"{BLOCKS}/")]
    found = {_KIND.sub("", name): name for name, mark in marked if mark is None}
    for kind in reversed(kinds):
        found |= {_KIND.sub("", name): name for name, mark in marked if mark is not None and mark[1] == kind}
    return sorted(found.values())


def _placeholders(context: Mapping[str, Any]) -> dict[str, str]:
    names = context.get("names")
    if not isinstance(names, Mapping) or not all(isinstance(names.get(key), str) for key in ("package", "model")):
        raise ScaffoldError("the spec has no names.package and names.model")
    validate_model(names["model"])
    validate_package(names["package"])
    return dict(zip(PLACEHOLDERS, (names["package"], names["model"]), strict=True))


def validate_package(package: str) -> None:
    """Raise `ScaffoldError` unless ``package`` may be a module name and a folder."""
    if not package.isascii() or not package.isidentifier() or package != package.lower():
        raise ScaffoldError(f"names.package {package[:80]!r} is not a lower-case identifier")


def _place(name: str, text: str, placeholders: Mapping[str, str]) -> tuple[str, RenderedFile]:
    path = _path(name, placeholders)
    if path.endswith(LINK_SUFFIX):
        path = path.removesuffix(LINK_SUFFIX)
        return path, RenderedFile(link_to=_link_target(name, path, text.strip()), template=name)
    text = text.strip("\n") + "\n"
    return path, RenderedFile(text, executable=path.endswith(".sh") and text.startswith("#!"), template=name)


def _path(name: str, placeholders: Mapping[str, str]) -> str:
    path = _KIND.sub("", name.removesuffix(SUFFIX))
    for placeholder, value in placeholders.items():
        path = path.replace(placeholder, value)
    return path


def _link_target(name: str, path: str, target: str) -> str:
    reached = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    if "\n" in target or posixpath.isabs(target) or reached.split("/")[0] == "..":
        raise ScaffoldError(f"template {name}: the link {path} would lead out of the tree")
    return target
