import torch

from verl_omni.pipelines.model_base import DiffusionModelBase
from verl_omni.pipelines.schedulers import FlowMatchSDEDiscreteScheduler

from .hours import set_hours, told
from .net import MosaicNet
from .strength import asked, stronger
from .words import padded

SQUARE = 8


@DiffusionModelBase.register("OmniMosaicForConditionalGeneration", algorithm="flow_grpo")
class MosaicTraining(DiffusionModelBase):
    @classmethod
    def build_module(cls, model_config, torch_dtype):
        return MosaicNet.from_pretrained(model_config.local_path, torch_dtype=torch_dtype)

    @classmethod
    def configure_trainable_params(cls, module, model_config):
        for parameter in module.parameters():
            parameter.data = parameter.data.float()
            parameter.requires_grad = True

    @classmethod
    def build_scheduler(cls, model_config):
        scheduler = FlowMatchSDEDiscreteScheduler()
        cls.set_timesteps(scheduler, model_config, "cpu")
        return scheduler

    @classmethod
    def set_timesteps(cls, scheduler, model_config, device):
        set_hours(scheduler, model_config.pipeline.num_inference_steps, device)

    @classmethod
    def prepare_model_inputs(cls, module, model_config, latents, timesteps, prompt_embeds, prompt_embeds_mask,
                             negative_prompt_embeds, negative_prompt_embeds_mask, micro_batch, step):  # fmt: skip
        size = model_config.pipeline
        shape = getattr(module, "module", module).shape
        rows, columns = size.height // SQUARE, size.width // SQUARE
        if rows * columns != latents.shape[2]:
            raise ValueError(f"{rows} x {columns} squares are not {latents.shape[2]}")
        down, right = torch.arange(rows)[:, None], torch.arange(columns)
        where = (shape.side * down + right).flatten().to(latents.device).expand(len(latents), -1)
        always = {"squares": latents[:, step], "hour": told(timesteps[:, step]), "where": where}
        words, spoken = padded(micro_batch["prompt_token_ids"], latents.device)
        return {**always, "words": words, "spoken": spoken}, {**always, "words": None, "spoken": None}

    @classmethod
    def forward_and_sample_previous_step(cls, module, scheduler, model_config, model_inputs, negative_model_inputs,
                                         scheduler_inputs, step):  # fmt: skip
        path, hours = scheduler_inputs["all_latents"].float(), scheduler_inputs["all_timesteps"]
        strength = asked(model_config.pipeline)
        velocity = module(**model_inputs)[0].float()
        if strength > 1.0:
            velocity = stronger(velocity, module(**negative_model_inputs)[0].float(), strength)
        found = scheduler.sample_previous_step(
            sample=path[:, step],
            model_output=velocity,
            timestep=hours[:, step],
            prev_sample=path[:, step + 1],
            noise_level=model_config.algo.noise_level,
            sde_type=model_config.algo.sde_type,
            return_sqrt_dt=True,
            include_logprob_normalizer=False,
        )
        return found[1:]
