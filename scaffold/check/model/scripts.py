"""Which scripts, data makers, deploy configurations and tests belong to a package."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from scaffold.check.model.shell import Preset
from scaffold.check.model.source import UndecodableError

if TYPE_CHECKING:
    from scaffold.check.model.package import Package
    from scaffold.check.model.pyfile import PythonFile
    from scaffold.check.model.shell import ShellScript
    from scaffold.check.model.source import SourceFile

ARCHITECTURE = "actor_rollout_ref.model.architecture"
ALGORITHM = "actor_rollout_ref.model.algorithm"


def presets(script: ShellScript, files: Sequence[SourceFile]) -> list[Preset]:
    """Return the settings of the configuration that a script asks for: of the one file with that name.

    Args:
        script: the script.
        files: YAML files that it may be.
    """
    from scaffold.files.documents import MalformedError, parse_yaml

    asked = script.configuration
    found = [file for file in files if asked is not None and file.name == f"{asked[0]}.yaml"]
    if asked is None or len(found) != 1:
        return []
    try:
        document = parse_yaml(_text(found[0]))
    except MalformedError:
        return []
    return [Preset(".".join(keys), raw, asked[1]) for keys, raw in _leaves(document, ()) if keys[0] != "defaults"]


def _leaves(value: Any, keys: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, (*keys, str(key)))
    elif keys:
        yield keys, value if isinstance(value, str) else json.dumps(value, default=str)


def belongs(package: Package, script: ShellScript) -> bool:
    """Whether a script trains a package; see `Package.belongs`."""
    named_after = _named_after(package, script)
    if not named_after and not any(architecture.encode() in script.data for architecture in package.architectures):
        return False
    named = script.override(ARCHITECTURE)
    if named is not None and isinstance(named.value, str):
        others = [p for p in package.project.packages if p is not package and p.mentions(named.value)]
        others = [other for other in others if named.value in other.architectures]
        if named.value in package.architectures:
            return not others or _algorithm_fits(package, script)
        if others:
            return False
    return named_after and _algorithm_fits(package, script)


def _algorithm_fits(package: Package, script: ShellScript) -> bool:
    """Whether the script's algorithm is the package's; the folder or file name says it where no override does."""
    override = script.override(ALGORITHM)
    if override is not None and isinstance(override.value, str):
        others = [p for p in package.project.packages if p.model_name == package.model_name and p is not package]
        # With no other package for the model, a wrong algorithm is a mistake in a script of this package.
        return override.value in package.algorithms or not others
    squeezed = [algorithm.replace("_", "") for algorithm in package.algorithms] or [
        package.name[len(package.model_name) :].replace("_", "")
    ]
    place = _squeeze(f"{script.folder.partition('/')[2]}/{script.name}")
    return any(algorithm in place for algorithm in squeezed)


def _named_after(package: Package, script: ShellScript) -> bool:
    model = package.model_name
    if script.path.startswith("examples/") and _is_of_one_model(script.folder):
        return script.folder.rpartition("/")[2] in (model, package.name)
    stem = f"_{script.name.removesuffix('.sh')}_"
    if f"_{model}_" not in stem:
        return False
    others = [p.model_name for p in package.project.packages if len(p.model_name) > len(model)]
    return not any(model in other and f"_{other}_" in stem for other in others)


def _is_of_one_model(folder: str) -> bool:
    """Whether a folder is ``examples/<algorithm>_trainer/<model>``; earlier releases kept all scripts one level up."""
    return folder.count("/") > 1


def _squeeze(text: str) -> str:
    return text.replace("_", "").replace("-", "")


def preprocessors(package: Package) -> list[PythonFile]:
    """Return the scripts that make the package's data; see `Package.preprocessors`."""
    project = package.project
    candidates = [
        path
        for path in [*project.files("examples", ".py"), *project.files("tests/special_e2e", ".py")]
        if "/data_process/" in path or re.search(r"(?:^|_)(?:data|dataset)(?:_|\.|$)", path.rpartition("/")[2])
    ]
    texts = [_text(script) for script in (*package.launch_scripts, *package.e2e_scripts)]
    for script in package.launch_scripts:
        # The README of a folder that all models share names the data of each.
        readme = project.source(f"{script.folder}/README.md") if _is_of_one_model(script.folder) else None
        if readme is not None:
            texts.append(_text(readme))
    found = []
    for path in candidates:
        if any(path in text for text in texts):
            file = project.python(path)
            if file is not None:
                found.append(file)
    return found


def deploy_configs(package: Package) -> list[SourceFile]:
    """Return the YAML files that the package's scripts name; see `Package.deploy_configs`."""
    found: dict[str, SourceFile] = {}
    for script in (*package.launch_scripts, *package.e2e_scripts):
        for mention in script.paths:
            if mention.path is not None and mention.path.endswith((".yaml", ".yml")):
                file = package.project.source(mention.path)
                if file is not None:
                    found[file.path] = file
    return list(found.values())


def cpu_tests(package: Package) -> list[PythonFile]:
    """Return the tests that import the package; see `Package.cpu_tests`."""
    found = []
    marks = (f"pipelines.{package.name}".encode(), f"import {package.name}".encode())
    for path in package.project.files("tests", ".py"):
        if not path.rpartition("/")[2].startswith("test_"):
            continue
        file = package.project.python(path)
        if file is not None and any(mark in file.data for mark in marks):
            if re.search(rf"pipelines(?:\.| import )(?:\w+, )*{package.name}\b", _text(file)):
                found.append(file)
    return found


def _text(file: SourceFile) -> str:
    try:
        return file.plain_text
    except UndecodableError:
        return ""
