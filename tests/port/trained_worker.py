"""Trains a rendered module as the engine does: loaded, checkpointed, with an adapter, sharded, one step, saved.

Runs with the contract kit: ``python trained_worker.py PACKAGE CASE``; prints one line of JSON.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import json
import os
import sys
import tempfile
import types
from pathlib import Path
from typing import Any


def main(package: Path, case_file: Path) -> None:
    import torch
    from peft import LoraConfig
    from safetensors.torch import load_file, save_file
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "RANK": "0", "WORLD_SIZE": "1"}
    case, name = load(case_file, "case"), f"verl_omni.pipelines.{package.name}"
    bare = types.ModuleType(name)  # without the adapters, which need the engine
    bare.__path__ = [str(package)]
    sys.modules[name] = bare
    stem = package.name.removesuffix("_flow_grpo")
    model = importlib.import_module(f"{name}.{stem}_model")
    owner = next(value for key, value in vars(model).items() if key.endswith("ForTraining"))
    base = owner.__bases__[1]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "transformer").mkdir()
        sizes = case.arguments("port")[1]
        (folder / "transformer/config.json").write_text(json.dumps(sizes))
        plain = base(**sizes)
        with torch.no_grad():
            for parameter in plain.parameters():
                parameter.copy_(torch.randn_like(parameter) / max(parameter.shape[-1], 4) ** 0.5)
        save_file(plain.state_dict(), folder / "transformer/model.safetensors")

        module = owner.from_pretrained(str(folder), torch_dtype=torch.float32)
        module.enable_gradient_checkpointing()
        module.requires_grad_(False)
        targets = [n for n, m in module.named_modules() if isinstance(m, torch.nn.Linear) and "blocks.0" in n]
        module.add_adapter(LoraConfig(r=2, lora_alpha=4, target_modules=targets, init_lora_weights=False))
        alone = copy.deepcopy(module)
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
        mesh = torch.distributed.init_device_mesh("cpu", (1,))
        layers = [inner for inner in module.modules() if type(inner).__name__ in owner._no_split_modules]
        for layer in layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(module, mesh=mesh)
        runs: list[int] = []
        leaf = next(part for part in layers[0].modules() if not [*part.children()])
        leaf.register_forward_pre_hook(lambda *_: runs.append(1))
        inputs = next(case.inputs(module))
        gradients = []
        for trained in (alone, module):
            trained(**inputs)[0].square().mean().backward()
            reached = {n: p.grad for n, p in trained.named_parameters() if p.grad is not None}
            gradients.append({n: g.full_tensor() if hasattr(g, "full_tensor") else g for n, g in reached.items()})
        apart, sharded = gradients
        worst = max(float((sharded[n] - g).abs().max() / g.abs().max().clamp_min(1e-6)) for n, g in apart.items())
        alone.save_pretrained(str(folder / "saved"))
        saved = load_file(folder / "saved/transformer/model.safetensors")
        same = all(torch.equal(saved[n], t) for n, t in plain.state_dict().items())
        print(json.dumps({
            "trained": sorted({n.rpartition(".lora_")[0] for n in gradients[0]} - {""}), "targets": len(targets),
            "same_names": gradients[0].keys() == gradients[1].keys(), "worst": worst, "runs": len(runs),
            "saved": same and saved.keys() == plain.state_dict().keys(), "sharded": len(layers),
        }))  # fmt: skip


def load(path: Path, name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    assert spec.loader is not None
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
