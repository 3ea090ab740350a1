"""Loads a tiny checkpoint with the real classes and with a rendered package, and compares what they compute.

Runs inside an environment of the real vllm-omni: ``python loading_worker.py TASKS.json``; see `test_loading`.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
import tempfile
import types
from functools import partial
from pathlib import Path
from typing import Any

import equality_worker
from equality_worker import Absent, engine, finish_loading, flat, load, randomise

# Before the names of the modules that the runtime executes.
PRIVATE = "flow_grpo_upstream"


def main(tasks: list[dict[str, Any]]) -> None:
    sys.path[:0] = [tasks[0]["root"], tasks[0]["contract"]]
    from scaffold.verify.rollout.engine_side import settings

    settings.before_imports()
    with engine():
        Absent.NAMES += ("scipy",)
        sys.meta_path.append(Absent())
        for task in tasks:
            try:
                found = prove(task)
            except Exception as error:  # the other checkpoints go on
                import traceback

                found = {"error": f"{type(error).__name__}: {error}", "at": traceback.format_exc().splitlines()[-8:]}
            print("RESULT " + json.dumps({"case": task["case"], **found}), flush=True)


def prove(task: dict[str, Any]) -> dict[str, Any]:
    """Return what differs between the real denoiser and the rendered module, each filled from one checkpoint."""
    import torch
    from safetensors.torch import load_file

    torch.manual_seed(0)
    case = load(Path(task["case_file"]), "case")
    checkpoint = load(Path(task["checkpoint_file"]), "checkpoint")
    upstream = importlib.import_module(task["module"])
    package = rendered(Path(task["package"]))
    for module in (upstream, package.denoiser.UPSTREAM.load(task["module"])):
        getattr(case, "prepare", lambda _: None)(module)  # sizes that no argument sets
    call = getattr(checkpoint, "call", None)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "checkpoint"
        write(folder, checkpoint, case, getattr(upstream, task["class"]))
        real = upstream_module(folder, upstream, checkpoint)
        module = package.model.from_pretrained(str(folder), torch_dtype=torch.float32)
        inputs = list(checkpoint.inputs(case, real) if hasattr(checkpoint, "inputs") else case.inputs(real))
        result: dict[str, Any] = {"loaded": difference(real, module, inputs, call)}
        result["weights"] = weights_apart(real, module)
        result["meta"] = [n for n, t in (*module.named_parameters(), *module.named_buffers()) if t.is_meta]

        saved = Path(name) / "saved"
        module.save_pretrained(str(saved))
        for beside in getattr(checkpoint, "BESIDE", ()):
            (saved / beside).parent.mkdir(exist_ok=True)
            (saved / beside).write_bytes((folder / beside).read_bytes())
        again = package.model.from_pretrained(str(saved), torch_dtype=torch.float32)
        state = module.state_dict()
        result["round_trip"] = [n for n, t in again.state_dict().items() if not torch.equal(t, state[n])]
        unused = tuple(getattr(checkpoint, "UNUSED", ()))
        result["files"] = []
        for path in sorted(saved.rglob("*.*")):
            original = folder / path.relative_to(saved)
            if path.suffix == ".json":
                same = path.read_bytes() == original.read_bytes()
            else:
                before, after = load_file(original), load_file(path)
                kept = {key for key in before if not key.startswith(unused or "?")}
                same = kept == after.keys() and all(torch.equal(before[k], after[k]) for k in after)
            result["files"].append([path.relative_to(saved).as_posix(), same])

        with torch.no_grad():
            for parameter in module.parameters():
                parameter.mul_(1.25)
        sent = [(f"transformer.{name}", tensor.detach()) for name, tensor in module.named_parameters()]
        before = difference(real, module, inputs, call)
        filled = through_adapter(package, task["attribute"], real, sent, checkpoint, folder)
        finish_loading(real)
        result["synced"], result["before_sync"] = difference(real, module, inputs, call), before
        result["left"] = sorted({name for name, _ in real.named_parameters()} - filled)
        if module._supports_gradient_checkpointing:
            result |= checkpointing(module, real, inputs, call)
    return result


def through_adapter(
    package: types.SimpleNamespace, attribute: str, real: Any, sent: Any, checkpoint: Any, folder: Path
) -> set[str]:
    """Give a pipeline of the rendered adapter's class the checkpoint's weights, then the actor's; names that it filled.

    The pipeline has nothing but the denoiser.
    """
    import torch
    from safetensors.torch import load_file

    pipeline = package.adapter.__new__(package.adapter)
    torch.nn.Module.__init__(pipeline)
    if getattr(checkpoint, "LOADED", False):
        pipeline._loaded = True
    pipeline.od_config = types.SimpleNamespace(model=str(folder))
    setattr(pipeline, attribute, real)
    for name in getattr(checkpoint, "COMPONENTS", ()):  # that its load_weights asks for
        setattr(pipeline, name, torch.nn.Module())
    place = getattr(checkpoint, "STREAMED", None)
    first: list[Any] = []
    if place is not None:
        pipeline.weights_sources = ["a source"]
        for path in sorted((folder / place).glob(getattr(checkpoint, "FILES", "*.safetensors"))):
            state = load_file(path)
            whole = any(name.startswith(f"{attribute}.") for name in state)  # the engine puts nothing before its names
            first += [(name if whole else f"{attribute}.{name}", tensor) for name, tensor in state.items()]
    pipeline.load_weights(iter(first))
    half = len(sent) // 2
    filled = pipeline.load_weights(iter(sent[:half])) | pipeline.load_weights(iter(sent[half:]))  # as buckets arrive
    assert all(name.startswith(f"{attribute}.") for name in filled)
    return {name.removeprefix(f"{attribute}.") for name in filled}


def weights_apart(real: Any, module: Any) -> list[str]:
    """Parameters that the two have under one name, and that are not equal."""
    import torch

    theirs = dict(real.named_parameters())
    return [n for n, p in module.named_parameters() if n in theirs and not torch.equal(p.float(), theirs[n].float())]


def evaluate(module: Any, real: Any, given: dict[str, Any], call: Any) -> list[Any]:
    """What a denoiser computes; of the module to train, what its own denoiser does."""
    if call is not None:
        return flat(call(module, real, **given))
    if module is real:
        return flat(real(**given))
    own = next(cls for cls in type(module).__mro__ if PRIVATE in cls.__module__)
    return flat(own.forward(module, **given))


def difference(real: Any, module: Any, inputs: list[dict[str, Any]], call: Any) -> float:
    """Largest difference of what the denoiser and the module's own denoiser compute, over the largest value."""
    import torch

    worst = 0.0
    for given in inputs:
        with torch.no_grad():
            expected, got = evaluate(real, real, given, call), evaluate(module, real, given, call)
        assert len(expected) == len(got) > 0
        for a, b in zip(expected, got, strict=True):
            assert float(a.abs().max()) > 0.05
            worst = max(worst, float((a - b).abs().max() / a.abs().max()))
    return worst


def checkpointing(module: Any, real: Any, inputs: list[dict[str, Any]], call: Any) -> dict[str, Any]:
    """Gradients with and without recomputation, and how often layers run with it."""
    import torch

    runs: dict[str, int] = {}
    first: dict[str, Any] = {}

    def count(layer: str, part: Any, _: Any) -> None:
        if first.setdefault(layer, part) is part:
            runs[layer] = runs.get(layer, 0) + 1

    names = set(module._no_split_modules)
    listed = {
        f"{path}.{name}"
        for path, inner in module.named_modules()
        if isinstance(inner, torch.nn.ModuleList) and not names  # then what the lists are made of
        for name, leaf in inner.named_modules()
        if not [*leaf.children()]
    }
    for name, inner in module.named_modules():
        if type(inner).__name__ in names or name in listed:
            # A layer computes itself again without being called: what is in it is called. Its text may use a part's
            # weights without calling that, so the first part that is called is counted.
            for leaf in (part for part in inner.modules() if not [*part.children()]):
                leaf.register_forward_pre_hook(partial(count, name))
    found = []
    counts = []
    for enabled in (False, True):
        if enabled:
            module.enable_gradient_checkpointing()
        runs.clear()
        module.zero_grad()
        for given in inputs:
            output = evaluate(module, real, given, call)
            sum(t.float().pow(2).mean() for t in output if t.requires_grad).backward()
        found.append({name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None})
        counts.append(dict(runs))
    plain, again = found
    gradients = max(float((plain[n] - again[n]).abs().max() / plain[n].abs().max().clamp_min(1e-6)) for n in plain)
    twice = [name for name, count in counts[0].items() if counts[1][name] == 2 * count]
    return {
        "gradients": gradients,
        "same_gradients": plain.keys() == again.keys() and len(plain) > 0,
        "recomputed": len(twice),
        "layers": len(counts[0]),
        "once": sorted(counts[0].keys() - set(twice)),
    }


def rendered(folder: Path) -> types.SimpleNamespace:
    """The modules of a rendered package; its adapters, which need more of the engine, are not imported."""
    name = f"verl_omni.pipelines.{folder.name}"
    runtime = "verl_omni.pipelines.flow_grpo_runtime"
    for other in [other for other in sys.modules if f"{other}.".startswith(f"{runtime}.")]:
        del sys.modules[other]  # another package's has other modules
    for beside in (folder, folder.parent / "flow_grpo_runtime"):
        package = types.ModuleType(f"verl_omni.pipelines.{beside.name}")
        package.__path__ = [str(beside)]
        sys.modules[package.__name__] = package
    stem = next(folder.glob("*_denoiser.py")).name.removesuffix("_denoiser.py")
    model = importlib.import_module(f"{name}.{stem}_model")
    adapter = importlib.import_module(f"{name}.vllm_omni_rollout_adapter")
    owner = next(value for key, value in vars(model).items() if key.endswith("ForTraining"))
    rollout = next(value for key, value in vars(adapter).items() if key.endswith("WithLogProb"))
    denoiser = importlib.import_module(f"{name}.{stem}_denoiser")
    return types.SimpleNamespace(model=owner, adapter=rollout, denoiser=denoiser)


def write(folder: Path, checkpoint: Any, case: Any, owner: Any) -> None:
    """Write the checkpoint of a randomised denoiser under the names that the checkpoint's module gives."""
    from safetensors.torch import save_file

    positional, named = checkpoint.arguments(case) if hasattr(checkpoint, "arguments") else case.arguments("real")
    real = checkpoint.make(case) if hasattr(checkpoint, "make") else owner(*positional, **named)
    randomise(real)
    sizes = named or getattr(positional[0], "tf_model_config", {}) if not hasattr(checkpoint, "arguments") else {}
    for path, content in checkpoint.files(real, sizes):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        if path.endswith(".json"):
            (folder / path).write_text(json.dumps(content))
        else:
            save_file({key: tensor.detach().clone() for key, tensor in content.items()}, folder / path)


def upstream_module(folder: Path, upstream: Any, checkpoint: Any) -> Any:
    """The denoiser as vllm-omni loads it."""
    from safetensors.torch import load_file

    def config(path: str) -> Any:
        return json.loads((folder / path).read_text())

    def weights(place: str) -> Any:
        for path in sorted((folder / place).glob("*.safetensors")):
            yield from load_file(path).items()

    real = checkpoint.build(str(folder), upstream, config, weights)
    with contextlib.suppress(AttributeError):
        finish_loading(real)
    return real.eval()


if __name__ == "__main__":
    assert equality_worker
    main(json.loads(Path(sys.argv[1]).read_text()))
