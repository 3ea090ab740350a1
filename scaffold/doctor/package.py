"""Whether a package outside of verl-omni works in this environment: it is importable and reaches both registries."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scaffold.doctor.examine import Finding
from scaffold.files.layout import CHECKOUT
from scaffold.files.resources import RUNTIME
from scaffold.limits import child_process
from scaffold.scratch import scratch_folder
from scaffold.verify.package import Package, open_package, scanned

SECONDS = 300.0
KEYS = ("actor_rollout_ref.model.external_lib", "actor_rollout_ref.rollout.external_lib")
_NEEDED = "training with the package"
_MARK = "omni-scaffold:"
_PROGRAM = f"""
import importlib, json, sys
found = {{}}
try:
    found["place"] = importlib.import_module(sys.argv[1]).__file__
    base = importlib.import_module("verl_omni.pipelines.model_base")
    for side, name in (("training", "DiffusionModelBase"), ("rollout", "VllmOmniPipelineBase")):
        kinds = getattr(base, name)._registry.items()
        found[side] = [list(key) for key, kind in kinds if f"{{kind.__module__}}.".startswith(f"{{sys.argv[1]}}.")]
except BaseException as error:
    found["error"] = f"{{type(error).__name__}}: {{' '.join(str(error).split())[:300]}}"
    found["missing"] = getattr(error, "name", None) if isinstance(error, ImportError) else None
print("{_MARK}" + json.dumps(found))
"""


def examine_package(path: Path) -> list[Finding]:
    """Import a package as verl-omni does, in a process of its own; its code runs.

    Raises:
        ScaffoldError: it is no package.
    """
    package = open_package(path)
    return [_importable(package), *_scripts(package)]


def _importable(package: Package) -> Finding:
    told = _told(package.module)
    name = "package"
    if "error" in told:
        top = str(told.get("missing") or "").partition(".")[0]
        if top == package.module.partition(".")[0]:
            problem = f"{package.module} is not installed in {sys.executable}"
            return Finding(name, _NEEDED, None, problem, _install(package))
        if top in ("verl_omni", "verl", "vllm_omni", "vllm", "torch", RUNTIME):
            problem = f"{top} is not installed in {sys.executable}: ask in the environment that trains"
            return Finding(name, _NEEDED, None, problem)
        return Finding(name, _NEEDED, package.module, f"cannot be imported: {told['error']}", None)
    place, missing = str(told.get("place")), [side for side in ("training", "rollout") if not told.get(side)]
    if missing:
        return Finding(name, _NEEDED, place, f"registers no {' and no '.join(missing)} adapter")
    if package.folder not in Path(place).resolve().parents:
        return Finding(name, _NEEDED, place, f"is another copy than {package.folder}", _install(package))
    both = ", ".join("/".join(key) for key in told["training"] if key in told["rollout"])
    if not both:
        return Finding(name, _NEEDED, place, "registers its adapters under different keys")
    return Finding(name, _NEEDED, f"{place}, registered as {both} on both sides")


def _install(package: Package) -> str:
    return f"pip install {package.root}" if package.layout is CHECKOUT else f"pip install -e {package.root}"


def _told(module: str) -> dict[str, Any]:
    with scratch_folder("doctor") as folder:  # the package must be found because it is installed, not by the folder
        done = child_process.run_text([sys.executable, "-c", _PROGRAM, module], seconds=SECONDS, cwd=folder)
    lines = [line for line in done.stdout.splitlines() if line.startswith(_MARK)]
    if not lines:
        return {"error": f"the process was {child_process.told_ending(done.returncode)}"}
    found = json.loads(lines[-1].removeprefix(_MARK))
    return found if isinstance(found, dict) else {}


def _scripts(package: Package) -> Iterator[Finding]:
    """Each launch script of a project, which has to name the package on both sides."""
    if package.layout is CHECKOUT:
        return
    for script in [*package.launch_scripts, *sorted(package.root.glob(f"{package.layout.smoke}*.sh"))]:
        text = scanned(script, package.root)
        if "verl_omni.trainer" not in text:
            continue
        lacking = [key for key in KEYS if not re.search(rf"{re.escape(key)}=[\"'\[]*{package.module}\b", text)]
        place = script.relative_to(package.root).as_posix()
        problem = f"does not set {' and '.join(lacking)} to {package.module}" if lacking else None
        yield Finding("script", _NEEDED, place, problem)
