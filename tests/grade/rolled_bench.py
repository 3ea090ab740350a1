"""The real loop around a prediction that a case writes down: what the rollout records without a denoiser to train."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any


def measure(bench: Any, task: dict[str, Any], helpers: Any, sources: Any, relative: Any) -> dict[str, Any]:
    """Differences between the recorded log-probs and those of the prediction, and the same without noise."""
    from pathlib import Path

    import torch

    bench.folder = task["tree"]
    bench.case = helpers.load(Path(task["cases"]) / f"{task['case']}.py", f"rolled_{task['case']}")
    bench.dtype, bench.denoiser = torch.float32, None
    adapters = sources.load_adapters(task["package"])
    bench.training, bench.rollout = adapters.training, adapters.rollout
    bench.upstream = next(c for c in bench.rollout.__mro__ if c.__module__.startswith("vllm_omni."))
    bench.common = importlib.import_module(f"{task['package']}.common")
    bench.runtime = f"{task['package'].rpartition('.')[0]}.{sources.RUNTIME}"
    attach = bench.case.attach
    bench.case.attach = lambda pipeline, _: attach(pipeline)
    bench.case.prompt = lambda *_: None
    bench.case.SAMPLING, bench.case.INFERENCE = {}, True
    bench.case.on_decode = lambda pipeline, report: setattr(bench, "last", pipeline)
    if hasattr(bench.case, "forward"):
        bench.upstream.forward = bench.case.forward

    def generate(cls: Any, **extra: Any) -> tuple[Any, Any]:
        output = bench.generate(cls, 6, **extra)[0]
        return output, bench.last.made.detach().float().clone()

    plain = generate(bench.upstream)[1]
    still = generate(bench.rollout, noise_level=0.0)[1]
    found = {"without_noise": relative(still, plain)}
    for name, extra in {
        "whole": {"noise_level": 0.7},
        "window": {"noise_level": 0.7, "sde_window_size": 2, "sde_window_range": [1, 4], "global_steps": 3},
        "cps": {"noise_level": 0.7, "sde_type": "cps"},
    }.items():
        output, made = generate(bench.rollout, **extra)
        found[name] = _compared(bench, output, extra)
        found[name]["differ"] = relative(made, still)
    return found


def _compared(bench: Any, output: Any, extra: dict[str, Any]) -> dict[str, Any]:
    import torch

    latents, times = output.trajectory_latents, output.trajectory_timesteps
    config = SimpleNamespace(
        pipeline=SimpleNamespace(num_inference_steps=bench.case.STEPS, height=None, width=None), local_path=bench.folder
    )
    scheduler = bench.training.build_scheduler(config)
    records = importlib.import_module(bench.runtime + ".records")
    records.carry_levels(scheduler, torch.tensor([*bench.case.LEVELS, 0.0]))
    expected, apart = [], 0.0
    for step in range(times.shape[1]):
        index = int((scheduler.timesteps - times[0, step]).abs().argmin())
        apart = max(apart, float((scheduler.timesteps[index] - times[0, step]).abs()))
        _, log_prob, *_ = scheduler.sample_previous_step(
            sample=latents[:, step],
            model_output=bench.case.velocity(latents[:, step], times[:, step]),
            timestep=scheduler.timesteps[index][None],
            prev_sample=latents[:, step + 1],
            noise_level=extra["noise_level"],
            sde_type=extra.get("sde_type", "sde"),
            include_logprob_normalizer=False,
        )
        expected.append(log_prob)
    difference = (torch.stack(expected, dim=1) - output.trajectory_log_probs).abs().max()
    return {"shape": list(latents.shape), "log_prob": float(difference), "levels": apart}
