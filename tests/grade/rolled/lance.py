"""LancePipeline: the loop is a module's, its scheduler an attribute that is empty; latents have no batch dimension."""

import torch

PIPELINE = "LancePipeline"
STEPS, TOKENS, CHANNELS = 5, 6, 4
SHIFT = 3.5  # that of the recipe
LEVELS = [SHIFT * t / (1 + (SHIFT - 1) * t) for t in (1 - i / STEPS for i in range(STEPS))]


def velocity(latents, sigma):
    return 0.5 * latents + sigma.reshape(-1, 1, 1).sin()


def attach(pipeline):
    from vllm_omni.diffusion.models.lance import pipeline_lance

    pipeline.bagel = pipeline_lance.LanceBagel.__new__(pipeline_lance.LanceBagel)
    torch.nn.Module.__init__(pipeline.bagel)
    pipeline.bagel.parallel_config = None
    pipeline.bagel.forward = lambda x_t, timestep, **_: velocity(x_t[None], timestep[:1])[0]
    pipeline.scheduler, pipeline.scheduler_kwargs = None, {}


def forward(pipeline, req):
    from vllm_omni.diffusion.data import DiffusionOutput

    names = ["text_ids", "text_indexes", "vae_position_ids", "vae_token_indexes", "position_ids"]
    made, *_ = pipeline.bagel.generate_image(
        **{f"packed_{name}": None for name in names},
        packed_init_noises=torch.randn(TOKENS, CHANNELS, generator=req.sampling_params.generator),
        packed_seqlens=torch.tensor([TOKENS + 2]),
        past_key_values=None,
        num_timesteps=req.sampling_params.num_inference_steps,
        timestep_shift=SHIFT,
        scheduler=pipeline.scheduler,
        scheduler_kwargs=pipeline.scheduler_kwargs,
    )
    pipeline.made = made[0][None]
    return DiffusionOutput(output=made[0])
