"""HunyuanImage3Pipeline: another pipeline inside has the loop, and is given the scheduler that the outer one keeps."""

from types import SimpleNamespace

import torch

PIPELINE = "HunyuanImage3ForCausalMM"
STEPS, CHANNELS = 5, 4


def velocity(latents, sigma):
    return 0.5 * latents + sigma.reshape(-1, 1, 1, 1).sin()


def sigmas(count, latent_size=None, model_path=None):
    grid = torch.linspace(1, 0, count + 1, dtype=torch.float64)[:-1]
    return (3 * grid / (1 + 2 * grid)).tolist()


OPEN = {"schedule": ("MODEL_sigmas", sigmas)}


def attach(pipeline):
    import json
    from pathlib import Path

    settings = {"flow_shift": 3.0}
    (Path(pipeline.od_config.model) / "generation_config.json").write_text(json.dumps(settings), encoding="utf-8")
    pipeline.generation_config = SimpleNamespace(**settings)
    pipeline.config = SimpleNamespace(
        vae_downsample_factor=(4, 4), vae={"latent_channels": CHANNELS}, cfg_distilled=False, use_meanflow=False
    )
    pipeline.vae = torch.nn.Module()
    pipeline.vae.device = torch.device("cpu")
    pipeline.vae.config = SimpleNamespace(scaling_factor=None, shift_factor=None)
    pipeline.vae.decode = lambda latents, **_: (kept(pipeline, latents),)
    pipeline._pipeline, pipeline.weight = None, torch.nn.Parameter(torch.zeros(1))  # the device is asked of it
    mask = torch.ones(1, 1, 2, 2)
    pipeline._prepare_attention_mask_for_generation = lambda *_, **__: mask
    pipeline.prepare_inputs_for_generation = lambda input_ids, images, timestep, **_: {"x": images, "t": timestep}
    pipeline.forward_call = lambda x, t, **_: {"diffusion_prediction": velocity(x.float(), t / 1000)}
    pipeline._update_model_kwargs_for_generation = lambda output, given: {**given, "attention_mask": mask}


def kept(pipeline, latents):
    pipeline.made = latents
    return latents


def forward(pipeline, req):
    from vllm_omni.diffusion.data import DiffusionOutput

    inner = pipeline.pipeline
    inner._maybe_handle_ar_kv_reuse = lambda input_ids, *_: (input_ids, 0)
    (image,) = inner(
        batch_size=1,
        image_size=[16, 16],
        num_inference_steps=req.sampling_params.num_inference_steps,
        guidance_scale=1.0,
        generator=req.sampling_params.generator,
        model_kwargs={"input_ids": torch.ones(1, 2, dtype=torch.long)},
        return_dict=False,
    )
    return DiffusionOutput(output=image)
