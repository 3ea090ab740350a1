"""What the checkout's own code asks of a package: contracts change between releases, and a tree says which it has."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING

from scaffold.check.model.pyfile import PythonFile

if TYPE_CHECKING:
    from scaffold.check.model.project import Project

_BASES = "verl_omni/pipelines/model_base.py"
_SERVERS = "verl_omni/workers/rollout"
_REQUESTS = "verl_omni/pipelines/rollout_request.py"  # where v0.3.0 and later build them


def takes_algorithm(project: Project, base: str) -> bool:
    """Whether a base class's ``register`` takes an algorithm; as in releases where the tree does not say."""
    file = project.python(_BASES)
    cls = file.find_class(base) if file is not None else None
    method = cls.method("register") if cls is not None else None
    return method is None or "algorithm" in method.parameters or method.node.args.kwarg is not None


@lru_cache(maxsize=8)
def sent_keys(project: Project) -> frozenset[str]:
    """Return the keys of the dictionaries that the rollout's server builds; empty where it is not in the tree."""
    found = set()
    for file in (*_files(project, _SERVERS), *_files(project, _REQUESTS)):
        for table in file.index.nodes(ast.Dict):
            found |= {key.value for key in table.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
        for part in file.index.nodes(ast.Subscript):
            key = part.slice
            if isinstance(part.ctx, ast.Store) and isinstance(key, ast.Constant) and isinstance(key.value, str):
                found.add(key.value)
    return frozenset(found)


def _files(project: Project, folder: str) -> list[PythonFile]:
    paths = [folder] if folder.endswith(".py") else project.files(folder, ".py")
    return [file for path in paths if (file := project.python(path)) is not None]
