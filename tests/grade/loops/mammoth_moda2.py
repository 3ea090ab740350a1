"""MammothModa2DiTPipeline: the method of the loop makes its scheduler; the unconditional branch has no text at all."""

from types import SimpleNamespace

import torch

PIPELINE = "MammothModa2DiTPipeline"
DENOISER = "mammoth_moda2"
SAMPLING = {"height": 32, "width": 32}
WIDTH = 24


def attach(pipeline, denoiser):
    pipeline.gen_transformer = denoiser
    pipeline.gen_image_condition_refiner = None
    pipeline.config = SimpleNamespace(
        llm_config=SimpleNamespace(gen_vocab_start_index=100),
        image_token_id=90, video_token_id=91, vision_start_token_id=92, vision_end_token_id=93,
    )  # fmt: skip
    pipeline.gen_freqs_cis = type(denoiser.rope_embedder).get_freqs_real((4, 4, 4), (64, 32, 32), 10000)
    pipeline._cache_dit_runtime = SimpleNamespace(is_enabled=False)
    pipeline._prepare_cache_dit_for_request = lambda **_: None


def prompt(pipeline, length):
    generator = torch.Generator().manual_seed(length)
    pipeline.condition = {
        "full_hidden_states": torch.randn(length + 3, WIDTH, generator=generator),
        "full_token_ids": [*range(1, length + 1), 101, 102, 103],
        "answer_start_index": length,
        "image_height": 32, "image_width": 32, "text_guidance_scale": 9.0,
    }  # fmt: skip


def request(pipeline):
    return {"prompt": "a prompt", "additional_information": pipeline.condition}


def on_decode(pipeline, report):
    class Decoder(torch.nn.Linear):
        config = SimpleNamespace(scaling_factor=None, shift_factor=None)

        def decode(self, latents, return_dict):
            report(latents)
            return (latents,)

    pipeline.gen_vae = Decoder(1, 1)
