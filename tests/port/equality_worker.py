"""Builds the real denoiser and the imported one with the same weights and compares what they compute.

Runs inside an environment of the real vllm-omni: ``python equality_worker.py TASK.json``. The task names the
case; the result is one line of JSON.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import importlib.util
import json
import re
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
        sys.path.insert(0, str(Path(tasks[0]["root"]) / "runtime" / "src"))
        for task in tasks:
            try:
                found = compare(task)
            except Exception as error:  # the other cases go on
                found = {"error": f"{type(error).__name__}: {error}", "at": traceback.format_exc().splitlines()[-6:]}
            print("RESULT " + json.dumps({"case": task["case"], **found}), flush=True)


def compare(task: dict[str, Any]) -> dict[str, Any]:
    """Return relative differences between the real denoiser and the imported one, and what else must hold of it."""
    import pickle

    import torch
    from peft import LoraConfig, inject_adapter_in_model

    from flow_grpo_runtime.layers import CheckpointedLayer
    from flow_grpo_runtime.upstream import Upstream, take_apart
    from flow_grpo_runtime.upstream_layers import Linear, LoraOfPair

    torch.manual_seed(0)
    case = load(Path(task["cases"]) / f"{task['case']}.py", "case")
    upstream = importlib.import_module(task["module"])
    before = set(sys.modules)
    plain = Upstream(task["version"], task["files"])
    module = plain.load(task["module"])
    sys.modules["ported_denoiser"] = module
    made = []
    for side, found in (("real", upstream), ("port", module)):
        getattr(case, "prepare", lambda _: None)(found)  # sizes that no argument sets
        positional, named = case.arguments(side)
        made.append(getattr(found, task["class"])(*positional, **named))
    real, imported = made[0], take_apart(made[1], [tuple(entry) for entry in task["apart"]])
    randomise(real)
    copied = copy_weights(real, imported, task["fused"])
    finish_loading(real)
    real.eval()
    imported.eval()
    call = getattr(case, "call", lambda model, **inputs: model(**inputs))
    inputs = list(case.inputs(real))

    def run(model: Any) -> list[Any]:
        return [flat(call(model, **given)) for given in inputs]

    def gradients() -> dict[str, Any]:
        imported.zero_grad()
        sum(t.float().pow(2).mean() for got in run(imported) for t in got if t.requires_grad).backward()
        return {name: p.grad.clone() for name, p in imported.named_parameters() if p.grad is not None}

    def differences(left: list[Any], right: list[Any]) -> list[float]:
        assert all(left)
        assert [len(got) for got in left] == [len(got) for got in right]
        return [
            max(float((a - b).abs().max() / b.abs().max().clamp_min(1e-12)) for a, b in zip(*pair, strict=True))
            for pair in zip(left, right, strict=True)
        ]

    with torch.no_grad():
        expected, got = run(real), run(imported)
    whole = gradients()
    layers = CheckpointedLayer.of(imported, task["checkpointed"])
    for layer in layers:
        layer.gradient_checkpointing = True
    again = gradients()
    worst = max((float((whole[n] - again[n]).abs().max()) for n in whole), default=1.0)
    assert whole.keys() == again.keys()
    found = {
        "differences": differences(got, expected),
        "largest": [max(float(t.abs().max()) for t in one) for one in expected],
        "copied": copied,
        "parameters": [name for name, _ in imported.named_parameters()],
        "with_gradient": sorted(whole),
        "checkpointed_layers": len(layers),
        "checkpointing": worst,
        "engine_imported": sorted(n for n in set(sys.modules) - before if n.partition(".")[0] in ("vllm", "vllm_omni")),
    }
    again = pickle.loads(pickle.dumps(imported))
    with torch.no_grad():
        found["pickled"] = max(differences(run(again), expected))
    names = [name for name, layer in imported.named_modules() if isinstance(layer, torch.nn.Linear)]
    lora = LoraConfig(r=2, target_modules=rf"(.*\.)?({'|'.join(map(re.escape, names))})")
    lora._register_custom_module({Linear: LoraOfPair})
    inject_adapter_in_model(lora, imported)
    with torch.no_grad():
        found["lora_at_zero"] = max(differences(run(imported), expected))
    taught = [name for name in gradients() if ".lora_B." in name]
    found["lora_with_gradient"], found["lora"] = (
        len(taught),
        sum(".lora_B." in n for n, _ in imported.named_parameters()),
    )
    return found


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
