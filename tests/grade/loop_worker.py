"""Runs a rendered partial package in the loop of the real pipeline, and trains on what it recorded.

Runs inside an environment of the real vllm-omni: ``python loop_worker.py TASK.json``. Only the text encoder and the VAE
of the pipeline are stand-ins, given by the case; the loop, the scheduler and the denoiser are vllm-omni's. The result
is one line of JSON a task.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import os
import sys
import tempfile
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

STEPS = 5


def main(tasks: list[dict[str, Any]]) -> None:
    sys.path[:0] = [tasks[0]["root"], tasks[0]["helpers"]]
    import equality_worker

    from scaffold.verify.rollout.engine_side import settings, sources

    settings.before_imports()
    os.environ.setdefault("LOCAL_RANK", "0")
    os.environ["OMNI_SCAFFOLD_KIT_PROFILE"] = tasks[0]["profile"]
    with equality_worker.engine():
        sys.meta_path.append(equality_worker.Absent())
        sources.install_kit(Path(tasks[0]["kit"]))
        for task in tasks:
            copied = (task["package"] + ".", f"{task['package'].rpartition('.')[0]}.{sources.RUNTIME}.")
            for name in [name for name in sys.modules if f"{name}.".startswith(copied)]:
                del sys.modules[name]  # another copy of the package, or of the runtime beside it, was here before
            sources.install_package(Path(task["tree"]), task["package"])
            try:
                if task.get("rolled"):
                    import rolled_bench

                    bench = EngineUnderTest.__new__(EngineUnderTest)
                    found = rolled_bench.measure(bench, task, equality_worker, sources, relative)
                else:
                    found = EngineUnderTest(task, equality_worker, sources).measure()
            except Exception as error:  # the other cases go on
                found = {"error": f"{type(error).__name__}: {error}", "at": traceback.format_exc().splitlines()[-8:]}
            print("RESULT " + json.dumps({"name": task["name"], **found}), flush=True)


class EngineUnderTest:
    """One package, its pipeline and its training module, all with the same weights."""

    stage_inputs: Any = None

    def __init__(self, task: dict[str, Any], helpers: Any, sources: Any) -> None:
        import torch

        torch.manual_seed(0)
        self.folder = tempfile.mkdtemp(dir=task["tree"])
        self.case = helpers.load(Path(task["cases"]) / f"{task['case']}.py", f"loop_{task['case']}")
        tiny = helpers.load(Path(task["denoisers"]) / f"{self.case.DENOISER}.py", f"denoiser_{task['case']}")
        adapters = sources.load_adapters(task["package"])
        self.training, self.rollout = adapters.training, adapters.rollout
        self.upstream = next(c for c in self.rollout.__mro__ if c.__module__.startswith("vllm_omni."))
        package = importlib.import_module(task["package"])
        self.common = importlib.import_module(f"{package.__name__}.common")
        self.model = importlib.import_module(f"{package.__name__}.{task['model']}_model")
        staged = Path(str(package.__file__)).with_name("stage_inputs.py").is_file()
        self.stage_inputs = importlib.import_module(f"{package.__name__}.stage_inputs") if staged else None
        denoisers = importlib.import_module(tiny.MODULE)
        upstream = importlib.import_module(f"{package.__name__}.{task['model']}_denoiser").UPSTREAM
        for where in (denoisers, upstream.load(tiny.MODULE)):
            getattr(tiny, "prepare", lambda _: None)(where)
        arguments = getattr(self.case, "arguments", tiny.arguments)
        positional, named = arguments("real")
        self.denoiser = getattr(denoisers, tiny.CLASS)(*positional, **named)
        positional, named = arguments("port")
        module = getattr(self.model, task["module"])
        runtime = importlib.import_module(type(upstream).__module__)
        fused = [(entry["owner"], entry["name"], tuple(entry["parts"])) for entry in task["fused"]]
        self.module = runtime.take_apart(module(*positional, **named), fused)
        helpers.randomise(self.denoiser)
        helpers.copy_weights(self.denoiser, self.module, task["fused"])
        helpers.finish_loading(self.denoiser)
        self.dtype = getattr(torch, task.get("dtype", "float32"))
        self.case.DTYPE = self.dtype
        for tensor in (*self.denoiser.parameters(), *self.denoiser.buffers()):
            if tensor.is_floating_point():  # a cast of the whole would take complex tables apart
                tensor.data = tensor.data.to(self.dtype)
        self.denoiser.eval()
        self.module.to(self.dtype).train()

    def pipeline(self, cls: Any) -> Any:
        """An instance whose parts are the case's instead of a checkpoint's."""
        import torch

        def init(pipeline: Any, **_: Any) -> None:
            torch.nn.Module.__init__(pipeline)
            pipeline.od_config = SimpleNamespace(model=self.folder, dtype=self.dtype, quantization_config=None)
            with contextlib.suppress(AttributeError):  # a property of some
                pipeline.device = torch.device("cpu")
            self.case.attach(pipeline, self.denoiser)
            if hasattr(getattr(pipeline, "scheduler", None), "save_config"):
                pipeline.scheduler.save_config(Path(self.folder) / "scheduler")

        before = self.upstream.__init__
        self.upstream.__init__ = init
        try:
            weights = getattr(self.case, "WEIGHTS", None)
            if weights is not None:
                (Path(self.folder) / weights).touch()
            return cls(od_config=SimpleNamespace(model=self.folder))
        finally:
            self.upstream.__init__ = before

    def generate(self, cls: Any, length: int, **extra: Any) -> tuple[Any, Any]:
        """Output of one request with a prompt of so many tokens, and the latents that the VAE got."""
        import torch

        pipeline = self.pipeline(cls)
        self.case.prompt(pipeline, length)
        decoded: list[Any] = []
        self.case.on_decode(pipeline, decoded.append)
        params = importlib.import_module("vllm_omni.inputs.data").OmniDiffusionSamplingParams(
            num_inference_steps=STEPS,
            generator=torch.Generator().manual_seed(7),
            extra_args={"generator": torch.Generator().manual_seed(11), **self.given, **extra},
            **self.case.SAMPLING,
        )
        requests = importlib.import_module("vllm_omni.diffusion.request")
        batches = importlib.import_module("vllm_omni.diffusion.worker.request_batch")
        asked = getattr(self.case, "request", lambda _: {"prompt": "a prompt"})(pipeline)
        if cls is self.rollout and self.stage_inputs is not None:  # in the file that a row of the data names
            params.extra_args[self.stage_inputs.STAGE_INPUTS] = f"{self.folder}/stage_inputs.safetensors"
            self.stage_inputs.write_stage_inputs(params.extra_args[self.stage_inputs.STAGE_INPUTS], asked)
            asked = {"prompt_token_ids": [1]}
        request = requests.OmniDiffusionRequest(prompt=asked, sampling_params=params, request_id="one")
        mode = torch.inference_mode if getattr(self.case, "INFERENCE", False) else torch.no_grad
        with mode(), getattr(self.case, "surroundings", contextlib.nullcontext)():
            output = pipeline(batches.DiffusionRequestBatch(requests=[request]))
        return output, decoded[-1].detach().float().clone() if decoded else None

    @property
    def given(self) -> dict[str, Any]:
        """What every request of the case holds beside its sampling settings."""
        return {**getattr(self.case, "EXTRA", {}), **getattr(self.case, "GUIDANCE", {})}

    def measure(self) -> dict[str, Any]:
        """Differences, each of which is near zero where the package is right."""
        import torch

        scale = self.common.resolve_guidance(getattr(self.case, "GUIDANCE", {}))
        _, plain = self.generate(self.upstream, 6, num_inference_steps=STEPS, **scale)
        _, still = self.generate(self.rollout, 6, noise_level=0.0)
        found: dict[str, Any] = {"without_noise": relative(still, plain), "euler": getattr(self.case, "EULER", True)}
        found["free"], found["taken"] = getattr(self.case, "FREE", 1.0), getattr(self.case, "TAKEN", STEPS)
        lengths = (6, 4)
        for name, extra in {
            "whole": {"noise_level": 0.7},
            "window": {"noise_level": 0.7, "sde_window_size": 2, "sde_window_range": [1, 4], "global_steps": 3},
            "cps": {"noise_level": 0.7, "sde_type": "cps"},
        }.items():
            outputs = [self.generate(self.rollout, length, **extra)[0] for length in lengths]
            found[name] = self._train(outputs, extra)
        found["steps_differ"] = relative(still, self.generate(self.rollout, 6, noise_level=0.7)[1])
        found["finite"] = bool(torch.isfinite(still).all())
        return found

    def _train(self, outputs: list[Any], extra: dict[str, Any]) -> dict[str, Any]:
        """Make the recorded steps again in training, all samples in one micro-batch."""
        import torch
        from tensordict import TensorDict
        from tensordict.tensorclass import NonTensorData, NonTensorStack

        latents = torch.cat([o.trajectory_latents for o in outputs])
        times = torch.cat([o.trajectory_timesteps for o in outputs])
        recorded = torch.cat([o.trajectory_log_probs for o in outputs])
        calls = [o.output["metadata"]["rl"]["denoiser_calls"] for o in outputs]
        batch = TensorDict({"all_latents": latents, "all_timesteps": times}, batch_size=len(outputs))
        batch["denoiser_calls"] = NonTensorStack.from_list([NonTensorData(value) for value in calls])
        config = SimpleNamespace(
            pipeline=SimpleNamespace(num_inference_steps=STEPS, height=self.case.SAMPLING.get("height"),
                                     width=self.case.SAMPLING.get("width"),
                                     guidance_scale=self.case.SAMPLING.get("guidance_scale"),
                                     **getattr(self.case, "GUIDANCE", {})),
            algo=SimpleNamespace(noise_level=extra["noise_level"], sde_type=extra.get("sde_type", "sde")),
            local_path=self.folder,
        )  # fmt: skip
        scheduler = self.training.build_scheduler(config)
        log_probs, formula, gradients = [], [], 0
        for step in range(times.shape[1]):
            inputs, negative = self.training.prepare_model_inputs(
                self.module, config, latents, times, None, None, None, None, batch, step
            )
            self.module.zero_grad()
            log_prob, mean, *_ = self.training.forward_and_sample_previous_step(
                self.module, scheduler, config, inputs, negative, batch, step
            )
            log_prob.sum().backward()
            gradients += sum(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in self.module.parameters())
            log_probs.append(log_prob.detach())
            formula.append(self._formula(scheduler, latents, times, mean.detach(), step, config.algo))
        ours, theirs = torch.stack(log_probs, dim=1), torch.stack(formula, dim=1)
        return {
            "shape": list(latents.shape),
            "bytes": [len(value) for value in calls],
            "log_prob": float((ours - recorded).abs().max()),
            "formula": float((theirs - recorded).abs().max()),
            "finite": bool(torch.isfinite(recorded).all()),
            "gradients": gradients,
            "moved": float((latents[:, 1:] != latents[:, :-1]).float().mean()),
        }

    def _formula(self, scheduler: Any, latents: Any, times: Any, mean: Any, step: int, algo: Any) -> Any:
        """Log-prob of the recorded step from the mean, written out: Gaussian without its constants, or minus square."""
        import torch

        squared = (latents[:, step + 1] - mean).flatten(1) ** 2
        moved = (latents[:, step + 1] != latents[:, step]).flatten(1)  # what is given has no part in it
        assert not squared[~moved].any(), "what is given has a step"
        squared = [row[part] for row, part in zip(squared, moved, strict=True)]
        if algo.sde_type == "cps":
            return torch.stack([-row.mean() for row in squared])
        sigmas = scheduler.sigmas
        values = []
        for row, sigma in zip(squared, times[:, step], strict=True):
            index = int((sigmas - sigma).abs().argmin())
            level = float(sigmas[index])
            denominator = 1 - (float(sigmas[1]) if level == 1 else level)
            deviation = algo.noise_level * math.sqrt(level / denominator)
            variance = deviation**2 * (level - float(sigmas[index + 1]))
            values.append(-(row / (2 * variance)).mean())
        return torch.stack(values)


def relative(a: Any, b: Any) -> float:
    """Largest difference over the largest value."""
    return float((a - b).abs().max() / b.abs().max().clamp_min(1e-12))


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main(json.loads(Path(sys.argv[1]).read_text()))
