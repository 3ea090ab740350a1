"""The kit's scheduler against verl-omni's own, bit by bit, wherever ``VERL_OMNI_SRC`` names a checkout.

The real file needs only torch and diffusers, so it is loaded by its path, in a child process.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from installed import require

from scaffold.files.resources import kit_root

require("torch", "diffusers")

VERL_OMNI = os.environ.get("VERL_OMNI_SRC", "")
SCHEDULER = "verl_omni/pipelines/schedulers/flow_match_sde.py"

BOTH_SCHEDULERS = """
import importlib.util, sys, torch
from verl_omni.pipelines.schedulers import FlowMatchSDEDiscreteScheduler as Kit

spec = importlib.util.spec_from_file_location("real_flow_match_sde", REAL)
module = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = module
spec.loader.exec_module(module)
assert module.__file__ == REAL

def same(a, b):
    assert (a is None) == (b is None)
    assert a is None or (a.dtype == b.dtype and torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0))), (a - b).abs().max()

def made(cls, sigmas):
    scheduler = cls()
    scheduler.set_shift(1.0)
    scheduler.set_timesteps(sigmas=sigmas)
    scheduler.timesteps = scheduler.sigmas[:-1].clone()
    scheduler.set_begin_index(0)
    return scheduler

count = 0
points = torch.linspace(1, 0, 12)[:-1].tolist()
schedules = [[1.0, 0.9, 0.7, 0.4, 0.1], [0.999, 0.5], [3 * t / (1 + 2 * t) for t in points]]
for sigmas in schedules:
    for kind in ("sde", "cps", "dance_sde"):
        for eta in (0.0, 0.7, 1.0):
            for flags in range(8):
                normalizer, logprobs, given = bool(flags & 1), bool(flags & 2), bool(flags & 4)
                results = []
                for cls in (Kit, module.FlowMatchSDEDiscreteScheduler):
                    scheduler, generator = made(cls, sigmas), torch.Generator().manual_seed(flags)
                    x, v, prev = torch.randn(3, len(sigmas), 6, 4, generator=generator)
                    common = dict(noise_level=eta, sde_type=kind, return_logprobs=logprobs,
                                  include_logprob_normalizer=normalizer, generator=generator)
                    batched = scheduler.sample_previous_step(
                        x, v, timestep=scheduler.timesteps, prev_sample=prev if given else None,
                        return_sqrt_dt=True, **common)
                    walked, state = [], x[:1]
                    for i in range(len(sigmas)):
                        step = scheduler.step(v[i:i + 1], scheduler.timesteps[i], state, return_dict=bool(i % 2),
                                              prev_sample=prev[i:i + 1] if given else None, **common)
                        walked += step.to_tuple() if i % 2 and logprobs else (
                            (step.prev_sample, step.log_prob, step.prev_sample_mean, step.std_dev_t) if i % 2 else step)
                        state = walked[-4]
                    results.append([*batched, *walked])
                for a, b in zip(*results, strict=True):
                    same(a, b)
                    count += 1
print(count)
"""


@pytest.mark.skipif(not VERL_OMNI, reason="VERL_OMNI_SRC names no verl-omni checkout")
def test_scheduler_numbers_are_bit_equal(run_python: Any) -> None:
    real = str(Path(VERL_OMNI, SCHEDULER).resolve())
    assert int(run_python(f"REAL = {real!r}\n{BOTH_SCHEDULERS}", kit_root())) > 3000
