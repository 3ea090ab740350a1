"""The three edits that make a package known to verl-omni, in ``verl_omni/pipelines/__init__.py``.

The name in ``from . import (...)``, the star import, and the line that extends ``__all__``. Each is made only where
it is missing, so that a half-registered package is completed and a registered one left alone. Everything else in
the file stays as it is, byte for byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scaffold.errors import ScaffoldError

if TYPE_CHECKING:
    import libcst as cst

    from scaffold.plan.registry.submodules import Statement

REGISTRY = "verl_omni/pipelines/__init__.py"


def add_package(source: str, package: str, *, path: str = REGISTRY) -> str:
    """Register ``package``; an already registered one leaves ``source`` unchanged.

    Args:
        source: text of the registry.
        package: module name below ``verl_omni/pipelines``.
        path: how messages name the file.

    Raises:
        ScaffoldError: the file does not parse or has another shape than a registry.
    """
    from scaffold.plan.registry import exports, star_import, submodules

    _validate(package)
    module = _parse(source, path)
    body = list(module.body)
    if _is_empty(body):
        blank = bool(body) or any(line.comment for line in module.header[-1:])
        body = submodules.create(body, package, blank=blank)
    else:
        body = submodules.add(body, package, path)
    body = star_import.add(body, package)
    body = exports.add(body, package, path)
    return module.with_changes(body=body).code


def remove_package(source: str, package: str, *, path: str = REGISTRY) -> str:
    """Undo `add_package`: ``remove_package(add_package(source, name), name) == source``.

    Where the last package goes, empty lines at the end of the file's header go with it. A package that is not
    registered leaves ``source`` unchanged.

    Raises:
        ScaffoldError: the file does not parse.
    """
    from scaffold.plan.registry import exports, star_import, submodules

    _validate(package)
    module = _parse(source, path)
    footer = [*exports.comments_above(module.body, package), *module.footer]
    body = exports.remove(list(module.body), package, path)
    body = star_import.remove(body, package)
    body = submodules.remove(body, package)
    header = list(module.header)
    while not body and module.body and header and header[-1].comment is None:
        header.pop()
    return module.with_changes(body=body, header=header, footer=footer).code


@dataclass(frozen=True)
class RegistryEdit:
    """`add_package` and `remove_package` for one package, as an edit of the registry at ``path``."""

    package: str
    path: str = REGISTRY

    def apply(self, source: str) -> str:
        """Return the registry with the package."""
        return add_package(source, self.package, path=self.path)

    def revert(self, source: str) -> str:
        """Return the registry without the package."""
        return remove_package(source, self.package, path=self.path)


def _validate(package: str) -> None:
    if not package.isascii() or not package.isidentifier():
        raise ScaffoldError(f"package {package[:80]!r} is not an identifier")


def _parse(source: str, path: str) -> cst.Module:
    import libcst as cst

    try:
        return cst.parse_module(source)
    except cst.ParserSyntaxError as error:
        raise ScaffoldError(f"{path}, line {error.raw_line}: does not parse as Python") from error
    except RecursionError as error:
        raise ScaffoldError(f"{path}: nested too deeply to be a registry of pipelines") from error


def _is_empty(body: Sequence[Statement]) -> bool:
    """Whether there is nothing but a docstring: a registry before its first package."""
    import libcst as cst

    from scaffold.plan.registry.submodules import sole

    if len(body) > 1:
        return False
    node = sole(body[0]) if body else None
    docstring = isinstance(node, cst.Expr) and isinstance(node.value, (cst.SimpleString, cst.ConcatenatedString))
    return not body or docstring
