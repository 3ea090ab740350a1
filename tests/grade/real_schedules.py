"""Child of test_noise_levels: the schedule of each pipeline as its source makes it, beside the rendered package's.

    python real_schedules.py FOLDER VERSION

FOLDER holds ``packages/NAME`` (rendered), ``sources/`` (files of vllm-omni as they are) and ``checkpoints/``. What each
pipeline does with its scheduler was written down here by hand, from the source; scheduler classes are taken out of the
source's own text.
"""

from __future__ import annotations

import ast
import importlib
import json
import math
import sys
import types
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import FlowMatchEulerDiscreteScheduler

HERE, VERSION = Path(sys.argv[1]), sys.argv[2]
SOURCES, CHECKPOINTS, PACKAGES = HERE / "sources", HERE / "checkpoints", HERE / "packages"
STEPS = (1, 2, 3, 8, 30, 50)
SIZES = ((32, 32), (64, 96), (128, 128))


@cache
def real_class(file: str, name: str, **known: Any) -> Any:
    """The class of the source's own text; imports that cannot be had here are left out."""
    namespace: dict[str, Any] = dict(known)
    tree = ast.parse((SOURCES / file.replace("/", "__")).read_text(encoding="utf-8"))
    for node in tree.body:
        wanted = isinstance(node, ast.Import | ast.ImportFrom) or (
            isinstance(node, ast.ClassDef) and "Schedul" in node.name
        )
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith("vllm")):
            continue
        if wanted:
            try:
                exec(compile(ast.Module([node], []), file, "exec"), namespace)
            except (ImportError, NameError, RuntimeError):
                continue
    return namespace[name]


def config(name: str) -> dict[str, Any] | None:
    path = CHECKPOINTS / name / "scheduler" / "scheduler_config.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


@cache
def unipc() -> Any:
    base = real_class("vllm_omni/diffusion/models/schedulers/base.py", "BaseScheduler")
    file = "vllm_omni/diffusion/models/schedulers/scheduling_flow_unipc_multistep.py"
    return real_class(file, "FlowUniPCMultistepScheduler", BaseScheduler=base)


def rising(scheduler: Any, n: int, size: tuple[int, int]) -> list[float]:
    scheduler.set_timesteps(num_inference_steps=n, num_tokens=size[0] * size[1])
    return (1 - scheduler.timesteps).tolist()


def omnigen2(checkpoint: str, n: int, size: tuple[int, int]) -> list[float]:
    file = "vllm_omni/diffusion/models/omnigen2/pipeline_omnigen2.py"
    return rising(real_class(file, "FlowMatchEulerDiscreteScheduler").from_config(config(checkpoint)), n, size)


def boogu(checkpoint: str, n: int, size: tuple[int, int]) -> list[float]:
    file = "vllm_omni/diffusion/models/boogu_image/scheduling_flow_match_euler_discrete_time_shifting.py"
    return rising(real_class(file, "FlowMatchEulerDiscreteScheduler").from_config(config(checkpoint)), n, size)


def mammoth(checkpoint: str, n: int, size: tuple[int, int]) -> list[float]:
    file = "vllm_omni/diffusion/models/mammoth_moda2/schedulers.py"
    return rising(real_class(file, "FlowMatchEulerDiscreteScheduler")(), n, size)


def wan_s2v(checkpoint: str, n: int, size: tuple[int, int]) -> list[float]:
    # Up to 0.28.0 the shift is the constructor's, which also bends where the grid begins.
    once = VERSION == "0.30.0"
    scheduler = unipc()(num_train_timesteps=1000, shift=1.0 if once else 3.0, prediction_type="flow_prediction")
    scheduler.set_timesteps(n, device="cpu", **({"shift": 3.0} if once else {}))
    assert 0.999 < scheduler.sigmas[0] < 1
    return [1.0, *scheduler.sigmas[1:-1].tolist()]


def lingbot(checkpoint: str, n: int, size: tuple[int, int]) -> list[float]:
    scheduler = unipc().from_config(config(checkpoint))
    scheduler.set_timesteps(n, device="cpu", shift=3.0)
    return [1.0, *scheduler.sigmas[1:-1].tolist()]


def sana_wm(checkpoint: str, n: int, size: tuple[int, int]) -> list[float]:
    file = "vllm_omni/diffusion/models/schedulers/scheduling_flow_match_euler_discrete.py"
    scheduler = real_class(file, "FlowMatchEulerDiscreteScheduler")(num_train_timesteps=1000, shift=9.8)
    scheduler.set_timesteps(n, device="cpu")
    return scheduler.sigmas[:-1].tolist()


def anima(checkpoint: str, n: int, size: tuple[int, int]) -> list[float]:
    found = config(checkpoint)
    if found is None:
        scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0)
    else:
        scheduler = FlowMatchEulerDiscreteScheduler.from_config(found)
    scheduler.set_timesteps(sigmas=np.linspace(1.0, 1 / n, n), device="cpu")
    return scheduler.sigmas[:-1].tolist()


def hunyuan(checkpoint: str, n: int, size: tuple[int, int]) -> list[float]:
    shift = json.loads((CHECKPOINTS / checkpoint / "generation_config.json").read_text(encoding="utf-8"))["flow_shift"]
    scheduler = FlowMatchEulerDiscreteScheduler(num_train_timesteps=1000, shift=shift, use_dynamic_shifting=False)
    scheduler.set_timesteps(n, device="cpu")
    return scheduler.sigmas[:-1].tolist()


def ming(checkpoint: str, n: int, size: tuple[int, int]) -> list[float]:
    scheduler = FlowMatchEulerDiscreteScheduler.from_config(config(checkpoint))
    length = (size[0] // 2) * (size[1] // 2)
    low, high = scheduler.config.get("base_image_seq_len", 256), scheduler.config.get("max_image_seq_len", 4096)
    least, most = scheduler.config.get("base_shift", 0.5), scheduler.config.get("max_shift", 1.15)
    slope = (most - least) / (high - low)
    scheduler.sigma_min = 0.0
    scheduler.set_timesteps(n, device="cpu", mu=length * slope + (least - slope * low))
    levels = scheduler.sigmas[:-1].tolist()
    assert n == 1 or levels[-1] == 0
    return [level for level in levels if level > 0]


def ming_flash(checkpoint: str, n: int, size: tuple[int, int]) -> list[float]:
    scheduler = FlowMatchEulerDiscreteScheduler.from_config(config(checkpoint))
    scheduler.config["use_dynamic_shifting"] = True
    length = (size[0] // 2) * (size[1] // 2)
    least, most = scheduler.config.get("base_shift", 0.5), scheduler.config.get("max_shift", 1.15)
    low, high = scheduler.config.get("base_image_seq_len", 256), scheduler.config.get("max_image_seq_len", 4096)
    slope = (most - least) / (high - low)
    scheduler.sigma_min = 0.0
    scheduler.set_timesteps(n, device="cpu", mu=length * slope + (least - slope * low))
    return [level for level in scheduler.sigmas[:-1].tolist() if level > 0]


def longcat(checkpoint: str, n: int, size: tuple[int, int]) -> list[float]:
    scheduler = FlowMatchEulerDiscreteScheduler.from_config(config(checkpoint))
    scheduler.set_timesteps(n, sigmas=torch.linspace(1, 0.001, n).to(torch.float32), device="cpu")
    return scheduler.sigmas[:-1].tolist()


def auk(checkpoint: str, n: int, size: tuple[int, int]) -> list[float]:
    t = torch.linspace(0, 1, n + 1, dtype=torch.float32)
    settings = json.loads((CHECKPOINTS / checkpoint / "config.json").read_text(encoding="utf-8"))
    t = t + settings.get("defaults", {}).get("sway", -1.0) * (torch.cos(math.pi / 2 * t) - 1 + t)
    return (1 - t)[:-1].tolist()


def pi0(checkpoint: str, n: int, size: tuple[int, int]) -> list[float]:
    dt = -1.0 / n
    return [torch.full((1,), 1.0 + step * dt, dtype=torch.float32).item() for step in range(n)]


def lance(checkpoint: str, n: int, size: tuple[int, int]) -> list[float]:
    schedule = torch.linspace(1, 0, n + 1)
    shift = 3.5  # which the recipe's requests ask for
    return (shift * schedule / (1 + (shift - 1) * schedule))[:-1].tolist()


REAL: dict[str, Callable[[str, int, tuple[int, int]], list[float]]] = {
    "OmniGen2Pipeline": omnigen2,
    "BooguImagePipeline": boogu,
    "MammothModa2DiTPipeline": mammoth,
    "WanS2VPipeline": wan_s2v,
    "LingBotVideoPipeline": lingbot,
    "SanaWmPipeline": sana_wm,
    "AnimaPipeline": anima,
    "HunyuanImage3ForCausalMM": hunyuan,
    "MingImageDiffusionPipeline": ming,
    "MingImagePipeline": ming_flash,
    "LongCatVideoAvatarPipeline": longcat,
    "AuKPipeline": auk,
    "Pi0Pipeline": pi0,
    "Pi05Pipeline": pi0,
    "LancePipeline": lance,
}


def rendered(name: str) -> Callable[..., list[float]]:
    """``MODEL_sigmas`` of a package."""
    folder = PACKAGES / name
    package = types.ModuleType(f"rendered_{name}")
    package.__path__ = [str(folder)]
    sys.modules[package.__name__] = package
    module = importlib.import_module(f"{package.__name__}.common")
    found = [value for key, value in vars(module).items() if key.endswith("_sigmas") and not key.startswith("setup_")]
    assert len(found) == 1
    return found[0]


def main() -> None:
    outcome: dict[str, Any] = {}
    for name in sorted(p.name for p in PACKAGES.iterdir()):
        sigmas = rendered(name)
        compared, wrong = 0, []
        for checkpoint in sorted(p.name for p in CHECKPOINTS.iterdir() if p.name.startswith(f"{name}.")):
            for n in STEPS:
                for size in SIZES:
                    ours = sigmas(n, size, str(CHECKPOINTS / checkpoint))
                    real = REAL[name](checkpoint, n, size)
                    compared += 1
                    if ours != real:
                        wrong.append([checkpoint, n, size, ours[:3], real[:3]])
        outcome[name] = {"compared": compared, "wrong": wrong}
    print(json.dumps(outcome))


if __name__ == "__main__":
    main()
