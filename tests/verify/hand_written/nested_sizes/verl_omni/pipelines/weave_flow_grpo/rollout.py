import random
from types import SimpleNamespace

import torch

from verl_omni.pipelines.diffusion_rollout_output import rollout_output
from verl_omni.pipelines.model_base import VllmOmniPipelineBase
from verl_omni.pipelines.schedulers import FlowMatchSDEDiscreteScheduler
from vllm_omni.diffusion.models.bagel.pipeline_bagel import BagelPipeline

from .shared import fill, settings


class Recorder:
    def __init__(self):
        self.inner = FlowMatchSDEDiscreteScheduler()
        self.window = None

    def begin(self, n, window, options):
        fill(self.inner, n)
        self.window, self.options, self.i = window, options, 0
        self.states, self.scores = [], []

    def step(self, v, sigma, x, dt, **_):
        low, high = self.window
        noisy = low <= self.i < high
        options = self.options if noisy else {**self.options, "noise_level": 0.0}
        following, score, *_ = self.inner.step(
            v.float()[None], self.inner.timesteps[self.i], x.float()[None], return_dict=False,
            return_logprobs=noisy, include_logprob_normalizer=False, **options)
        if noisy:
            self.states += [following] if self.states else [x.float()[None], following]
            self.scores.append(score)
        self.i += 1
        return SimpleNamespace(prev_sample=following[0], log_prob=score[0] if noisy else None)


@VllmOmniPipelineBase.register("OmniWeaveForConditionalGeneration", algorithm="flow_grpo")
class WeaveSampler(BagelPipeline):
    def __init__(self, *, od_config, prefix=""):
        super().__init__(od_config=od_config, prefix=prefix)
        self.scheduler = Recorder()

    def forward(self, req):
        prompt = req.prompts[0]
        if isinstance(prompt, dict) and not prompt.get("prompt") and prompt.get("prompt_token_ids") is not None:
            ids = [int(i) for i in prompt["prompt_token_ids"]]
            text = self.tokenizer.decode(ids, skip_special_tokens=False)
            if "<|im_start|>user\n" in text:
                text = text.rpartition("<|im_start|>user\n")[2].partition("<|im_end|>")[0]
            prompt["prompt"] = text.removeprefix("<|im_start|>").removesuffix("<|im_end|>").strip()
        p = req.sampling_params
        asked = p.extra_args
        asked.update(settings(asked))
        asked["cfg_interval"] = tuple(asked["cfg_interval"])
        n, noise = p.num_inference_steps, asked.get("noise_level", 0.0)
        count = max(n, 2) - 1
        window = (0, count) if noise > 0 else (0, 0)
        size = asked.get("sde_window_size")
        if size and noise > 0:
            low, high = asked.get("sde_window_range") or (0, size)
            begin = low
            if high - size > low:
                begin += int(random.Random(int(asked["global_steps"])).random() * (high - size - low + 1))
            window = (begin, begin + size)
        self.scheduler.begin(n, window, {"noise_level": noise, "sde_type": asked.get("sde_type", "sde"),
                                         "generator": asked.get("generator")})
        out = super().forward(req)
        media = out.output["payload"]["image"] if isinstance(out.output, dict) else out.output
        kept = self.scheduler
        if not kept.states:
            return rollout_output(media=media, to_cpu=False)
        return rollout_output(
            media=media, trajectory_latents=torch.stack(kept.states, 1),
            trajectory_timesteps=kept.inner.timesteps[window[0] : window[1]][None],
            trajectory_log_probs=torch.stack(kept.scores, 1), to_cpu=False)
