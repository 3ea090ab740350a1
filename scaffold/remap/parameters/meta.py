"""Asks the module itself: built on torch's meta device, in a child process, because this runs its code."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scaffold import child_process
from scaffold.documents import parse_json
from scaffold.errors import ScaffoldError
from scaffold.remap.parameters.values import Shape
from scaffold.resources import kit_root

TIMEOUT_SECONDS = 300
_CHILD = """
import sys
sys.path[:] = [entry for entry in sys.path if entry]
import importlib.util, json
import torch
path, module, config, kit, values = sys.argv[1:]
try:
    import verl_omni.pipelines.non_diffusers_model_base
except ImportError:
    for name in [name for name in sys.modules if name.partition(".")[0] == "verl_omni"]:
        del sys.modules[name]
    sys.path.insert(0, kit)
spec = importlib.util.spec_from_file_location("rendered_module", path)
rendered = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = rendered
spec.loader.exec_module(rendered)
fields = json.loads(values)
with torch.device("meta"):
    model = getattr(rendered, module)(getattr(rendered, config)(**fields))
print("\\n" + json.dumps({name: list(tensor.shape) for name, tensor in model.state_dict().items()}))
"""


def parameters_on_meta(path: Path, module: str, config: str, values: Mapping[str, Any]) -> dict[str, Shape]:
    """Return name and shape of every entry of the state dict, as torch makes them.

    The base class comes from verl-omni where it is installed, else from the contract kit.

    Args:
        path: file of the rendered module.
        module: the training module's class.
        config: the configuration's class.
        values: fields of the configuration; the others keep their defaults.

    Raises:
        ScaffoldError: torch or another import is missing, or the module cannot be built.
    """
    command = [
        sys.executable,
        "-c",
        _CHILD,
        str(path.absolute()),
        module,
        config,
        str(kit_root()),
        json.dumps(dict(values)),
    ]
    try:
        variables = child_process.environment(PYTHONDONTWRITEBYTECODE="1")
        done = child_process.run_text(command, seconds=TIMEOUT_SECONDS, variables=variables)
    except child_process.TookTooLong:
        raise ScaffoldError(f"{path.name}: building {module} took over {TIMEOUT_SECONDS} s") from None
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or [child_process.told_ending(done.returncode)])[-1][:300]
        raise ScaffoldError(
            f"{path.name}: {module} cannot be built on the meta device: {reason}", hint="leave --meta out to read it"
        )
    try:
        shapes = parse_json(done.stdout.splitlines()[-1])
        return {str(name): tuple(map(int, shape)) for name, shape in shapes.items()}
    except (IndexError, ValueError, TypeError, AttributeError):
        # Its code may end the process, or print after our last line.
        raise ScaffoldError(f"{path.name}: building {module} ended without a list of its parameters") from None
