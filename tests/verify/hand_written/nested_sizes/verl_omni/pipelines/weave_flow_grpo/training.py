import torch
from torch import nn

from verl_omni.pipelines.model_base import DiffusionModelBase
from verl_omni.pipelines.schedulers import FlowMatchSDEDiscreteScheduler

from .fabric import Fabric
from .shared import fill, guide, settings


@DiffusionModelBase.register("OmniWeaveForConditionalGeneration", algorithm="flow_grpo")
class WeaveTraining(DiffusionModelBase):
    @classmethod
    def build_module(cls, model_config, torch_dtype):
        return Fabric.revive(model_config.local_path, torch_dtype)

    @classmethod
    def configure_trainable_params(cls, module, model_config):
        module.requires_grad_(False)
        for p in module.plies.parameters():
            p.requires_grad_(True)
            p.data = p.data.float()

    @classmethod
    def build_scheduler(cls, model_config):
        scheduler = FlowMatchSDEDiscreteScheduler()
        cls.set_timesteps(scheduler, model_config, "cpu")
        return scheduler

    @classmethod
    def set_timesteps(cls, scheduler, model_config, device):
        fill(scheduler, model_config.pipeline.num_inference_steps, device)

    @classmethod
    def prepare_model_inputs(cls, module, model_config, latents, timesteps, prompt_embeds, prompt_embeds_mask,
                             negative_prompt_embeds, negative_prompt_embeds_mask, micro_batch, step):
        inner = getattr(module, "module", module)
        canvas = inner.draft.canvas
        side = 8 * canvas.patch
        h, w = model_config.pipeline.height // side, model_config.pipeline.width // side
        device = latents.device
        place = (torch.arange(h, device=device)[:, None] * canvas.edge + torch.arange(w, device=device)).flatten()
        t = timesteps[:, step].float()
        f = t[:, None] * torch.logspace(0, 2, 16, device=device)
        same = {"picture": latents[:, step], "hour": torch.cat([f.sin(), f.cos()], -1), "place": place.expand(len(t), -1)}
        rows = [torch.as_tensor(list(getattr(r, "data", r)), device=device) for r in micro_batch["prompt_token_ids"]]
        speech = nn.utils.rnn.pad_sequence(rows, batch_first=True)
        lengths = torch.tensor([len(r) for r in rows], device=device)
        spoken = torch.arange(speech.shape[1], device=device) < lengths[:, None]
        return {**same, "speech": speech, "spoken": spoken}, {**same, "speech": None, "spoken": None}

    @classmethod
    def forward_and_sample_previous_step(cls, module, scheduler, model_config, model_inputs, negative_model_inputs,
                                         scheduler_inputs, step):
        x, t = scheduler_inputs["all_latents"], scheduler_inputs["all_timesteps"]
        chosen = settings({name: getattr(model_config.pipeline, name, None) for name in settings({})})
        v = module(**model_inputs)[0].float()
        if chosen["cfg_text_scale"] > 1:
            v = guide(v, module(**negative_model_inputs)[0].float(), t[:, step], chosen)
        _, log_prob, mean, std, root = scheduler.sample_previous_step(
            sample=x[:, step].float(), model_output=v, timestep=t[:, step], prev_sample=x[:, step + 1].float(),
            noise_level=model_config.algo.noise_level, sde_type=model_config.algo.sde_type, return_logprobs=True,
            return_sqrt_dt=True, include_logprob_normalizer=False)
        return log_prob, mean, std, root
