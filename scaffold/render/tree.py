"""From the folder of templates to the tree of files."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from scaffold.errors import ScaffoldError
from scaffold.files.resources import templates_root
from scaffold.limits.cpu_limit import CpuLimit
from scaffold.render.names import validate_model
from scaffold.render.rendered import RenderedFile
from scaffold.render.runtime import with_runtime

SUFFIX = ".jinja"
LINK_SUFFIX = ".link"
BLOCKS = "blocks"
PLACEHOLDERS = ("_package_", "_model_")
CPU_SECONDS = 30.0
"""Processor time for all templates of a package: many times what the packaged ones take."""
_KIND = re.compile(r"\.(composed|ported)(?=\.[\w.]+$)")


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
    ``NAME.ported.py.jinja`` is for packages whose denoiser is ported, ``NAME.composed.py.jinja`` for the others.

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
    files: dict[str, RenderedFile] = {}
    for name in _template_names(root, "ported" if "port" in context else "composed"):
        with cpu_limit.work():
            text = render_template(env, sources, name, context)
        if not text.strip():
            continue
        path, file = _place(name, text, placeholders)
        file = replace(file, template=sources.shown(name) or name)
        if path in files:
            raise ScaffoldError(f"templates {files[path].template} and {name} both give {path}")
        files[path] = file
    return dict(sorted(with_runtime(finish(files, [] if notes is None else notes)).items()))


def template_paths(model: str, package: str, templates: Path | None = None) -> frozenset[str]:
    """Return every path that a package of these names may have a file at, whatever its spec says.

    Args:
        model: ``names.model``.
        package: ``names.package``.
        templates: folder of templates; the packaged one by default.

    Raises:
        ScaffoldError: a name that no package has.
    """
    root = (templates or templates_root()).resolve()
    placeholders = _placeholders({"names": {"model": model, "package": package}})
    names = {name for kind in ("composed", "ported") for name in _template_names(root, kind)}
    return frozenset(_path(name, placeholders).removesuffix(LINK_SUFFIX) for name in names)


def _template_names(root: Path, kind: str) -> list[str]:
    names = (path.relative_to(root).as_posix() for path in root.rglob(f"*{SUFFIX}") if path.is_file())
    found = ((name, _KIND.search(name)) for name in names if not name.startswith(f"{BLOCKS}/"))
    return sorted(name for name, mark in found if mark is None or mark[1] == kind)


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
