"""InternVLAA1Pipeline: time is added up in a while loop; the loop is a method of a module two levels down."""

from types import SimpleNamespace

import torch
from transformers.models.qwen3_vl import modeling_qwen3_vl

# A decorator that the transformers of this environment no longer has.
modeling_qwen3_vl.check_model_inputs = lambda function: function

PIPELINE = "InternVLAA1Pipeline"
STEPS, HORIZON, WIDTH = 5, 4, 6
LEVELS = [1 - i / STEPS for i in range(STEPS)]


def velocity(latents, sigma):
    return 0.5 * latents + sigma.reshape(-1, 1, 1).sin()


def attach(pipeline):
    from vllm_omni.diffusion.models.internvla_a1.model_internvla_a1 import InternVLAA1

    class Policy(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = InternVLAA1.__new__(InternVLAA1)
            torch.nn.Module.__init__(self.model)

        def forward(self, batch_inputs, noise, decode_image):
            images = torch.zeros(1, 1, 3, 2, 2)
            actions, _ = self.model.sample_actions(
                images, None, None, None, torch.zeros(1, 2), None, torch.zeros(1, WIDTH), noise=noise
            )
            pipeline.made = actions
            return actions, None

    def encoded(*_, **__):
        return (torch.zeros(1, 2, 3), torch.zeros(1, 2, 3), None), None

    pipeline.model_dir, pipeline.policy = None, Policy()
    model = pipeline.policy.model
    model.config = SimpleNamespace(
        num_inference_steps=STEPS,
        chunk_size=HORIZON,
        max_action_dim=WIDTH,
        enable_suffix_static_context_optimization=False,
    )
    pads = torch.ones(1, 2, dtype=torch.bool), torch.ones(1, 2)
    model.embed_prefix = model.embed_middle = lambda *_: (torch.zeros(1, 2, 3), *pads)
    model.get_position_ids = lambda *_: (torch.ones(3, 1, 2), None)
    model._prepare_attention_masks_4d = lambda mask, dtype: mask
    model.qwen3_vl_with_expert = SimpleNamespace(forward=encoded)
    model.denoise_step = lambda state, pads, cache, positions, x_t, time: velocity(x_t, time)


EXTRA = {
    "batch_inputs": {},
    "noise": torch.randn(1, HORIZON, WIDTH, generator=torch.Generator().manual_seed(9)),
}
