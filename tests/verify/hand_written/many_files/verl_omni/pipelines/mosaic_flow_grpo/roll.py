import os
import random

import torch

from verl_omni.pipelines.diffusion_rollout_output import rollout_output
from verl_omni.pipelines.model_base import VllmOmniPipelineBase
from vllm_omni.diffusion.models.bagel.pipeline_bagel import BagelPipeline

from .diary import Diary
from .strength import NAME, USUAL


def window_of(asked):
    size = asked.get("sde_window_size")
    if not size:
        return None
    low, high = asked.get("sde_window_range") or (0, size)
    room = high - size - low
    begin = low + (random.Random(os.environ["LOCAL_RANK"]).randint(0, room) if room > 0 else 0)
    return begin, begin + size


@VllmOmniPipelineBase.register("OmniMosaicForConditionalGeneration", algorithm="flow_grpo")
class MosaicPipeline(BagelPipeline):
    def __init__(self, *, od_config, prefix=""):
        super().__init__(od_config=od_config, prefix=prefix)
        self.scheduler = Diary()

    def forward(self, req):
        asked = req.sampling_params.extra_args
        asked.setdefault(NAME, USUAL)
        diary = self.scheduler
        diary.open(req.sampling_params.num_inference_steps, window_of(asked), asked["noise_level"], asked["sde_type"])
        made = super().forward(req)
        if not diary.path:
            return rollout_output(media=None, to_cpu=False)
        return rollout_output(
            media=made.output["payload"]["image"],
            trajectory_latents=torch.stack(diary.path, 1),
            trajectory_timesteps=diary.clock.timesteps[diary.first : diary.last][None],
            trajectory_log_probs=torch.stack(diary.scores, 1),
            to_cpu=False,
        )
