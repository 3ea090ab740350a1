"""Builds the real denoiser and the ported one with the same weights and compares what they compute.

Runs inside an environment of the real vllm-omni: ``python equality_worker.py TASK.json``. The task names the port's
file and the case; the result is one line of JSON.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import importlib.util
import json
import socket
import sys
import traceback
import types
from pathlib import Path
from typing import Any


def main(tasks: list[dict[str, Any]]) -> None:
    sys.path.insert(0, tasks[0]["root"])
    from scaffold.verify.rollout.engine_side import settings

    settings.before_imports()
    with engine():
        sys.meta_path.append(Absent())
        verl = types.ModuleType("verl.utils.device")
        verl.get_device_name = lambda: "cpu"
        sys.modules.update({"verl": types.ModuleType("verl"), "verl.utils": types.ModuleType("verl.utils")})
        sys.modules["verl.utils.device"] = verl
        for task in tasks:
            try:
                found = compare(task)
            except Exception as error:  # the other cases go on
                found = {"error": f"{type(error).__name__}: {error}", "at": traceback.format_exc().splitlines()[-6:]}
            print("RESULT " + json.dumps({"case": task["case"], **found}), flush=True)


def compare(task: dict[str, Any]) -> dict[str, Any]:
    """Return relative differences of the outputs, and the parameters that no gradient reached."""
    import torch

    torch.manual_seed(0)
    case = load(Path(task["cases"]) / f"{task['case']}.py", "case")
    upstream = importlib.import_module(task["module"])
    port = load(Path(task["port"]), "ported_denoiser")
    made = []
    for side, module, name in (("real", upstream, task["class"]), ("port", port, task["entry"])):
        getattr(case, "prepare", lambda _: None)(module)  # sizes that no argument sets
        positional, named = case.arguments(side)
        made.append(getattr(module, name)(*positional, **named))
    real, ported = made
    randomise(real)
    copied = copy_weights(real, ported, task["fused"])
    finish_loading(real)
    real.eval()
    ported.eval()
    call = getattr(case, "call", lambda model, **inputs: model(**inputs))
    differences, largest, reached = [], [], set()
    for inputs in case.inputs(real):
        with torch.no_grad():
            expected = flat(call(real, **inputs))
        got = flat(call(ported, **inputs))
        assert len(got) == len(expected) > 0
        differences.append(
            max(float((a - b).abs().max() / b.abs().max().clamp_min(1e-12)) for a, b in zip(got, expected, strict=True))
        )
        largest.append(max(float(t.abs().max()) for t in expected))
        ported.zero_grad()
        sum(t.float().pow(2).mean() for t in got if t.requires_grad).backward()
        reached |= {name for name, parameter in ported.named_parameters() if parameter.grad is not None}
    names = [name for name, _ in ported.named_parameters()]
    return {
        "differences": differences,
        "largest": largest,
        "copied": copied,
        "parameters": len(names),
        "without_gradient": sorted(set(names) - reached),
    }


class Hollow(type):
    """A class whose attributes are their own names."""

    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return f"{cls.__name__}.{name}"


class Absent:
    """Finds hollow modules for what is imported beside the denoisers and missing in the environment."""

    NAMES = ("torchaudio", "compressed_tensors")

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] in self.NAMES:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> Any:
        module = types.ModuleType(spec.name)
        module.__getattr__ = lambda name: Hollow(name, (), {}) if not name.startswith("__") else None
        return module

    def exec_module(self, module: Any) -> None:
        return None


def load(path: Path, name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def engine() -> Any:
    """One process as a group of its own, and a configuration of the engine's."""
    from vllm.config import VllmConfig, set_current_vllm_config

    parallel = importlib.import_module("vllm_omni.diffusion.distributed.parallel_state")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    stack = contextlib.ExitStack()
    stack.enter_context(set_current_vllm_config(VllmConfig()))
    parallel.init_distributed_environment(
        world_size=1, rank=0, local_rank=0, distributed_init_method=f"tcp://127.0.0.1:{port}", backend="gloo"
    )
    parallel.initialize_model_parallel(backend="gloo")
    return stack


def randomise(module: Any) -> None:
    """Give every parameter a value that matters; norms stay near one."""
    import torch

    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if parameter.ndim == 1 and "bias" not in name:
                parameter.copy_(1 + 0.1 * torch.randn_like(parameter))
            else:
                fan = parameter.shape[-1] if parameter.ndim > 1 else 16
                parameter.copy_(torch.randn_like(parameter) / fan**0.5)


def copy_weights(real: Any, ported: Any, fused: list[dict[str, Any]]) -> int:
    """Fill the ported module from the real one, fused rows taken apart; every parameter of either must be used."""
    import torch

    state, target = dict(real.state_dict()), ported.state_dict()
    left, filled = set(state), set()
    rows: dict[str, int] = {}
    with torch.no_grad():
        for name, tensor in target.items():
            if name in state:
                tensor.copy_(state[name])
                left.discard(name)
                filled.add(name)
                continue
            path, _, kind = name.rpartition(".")
            above, _, last = path.rpartition(".")
            for entry in fused:
                if last not in entry["parts"]:
                    continue
                source = f"{above}.{entry['name']}.{kind}" if above else f"{entry['name']}.{kind}"
                if source not in state:
                    continue
                before = [f"{above}.{part}.{kind}" if above else f"{part}.{kind}" for part in entry["parts"]]
                start = sum(target[part].shape[0] for part in before[: entry["parts"].index(last)])
                tensor.copy_(state[source][start : start + tensor.shape[0]])
                rows[source] = rows.get(source, 0) + tensor.shape[0]
                filled.add(name)
                break
    for source, count in rows.items():
        if count == state[source].shape[0]:
            left.discard(source)
    missing = sorted(set(target) - filled)
    if missing or left:
        raise AssertionError(f"not filled: {missing[:5]}; not used: {sorted(left)[:5]}")
    return len(filled)


def finish_loading(module: Any) -> None:
    """What the engine does once weights are there."""
    for layer in module.modules():
        method = getattr(layer, "quant_method", None)
        if hasattr(method, "process_weights_after_loading"):
            method.process_weights_after_loading(layer)


def flat(output: Any) -> list[Any]:
    """All tensors of an output, in order."""
    import torch

    if isinstance(output, torch.Tensor):
        return [output]
    if isinstance(output, dict):
        return [t for value in output.values() for t in flat(value)]
    if isinstance(output, (list, tuple)):
        return [t for value in output for t in flat(value)]
    if output is None or isinstance(output, (int, float, str)):
        return []
    return flat(vars(output))


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
