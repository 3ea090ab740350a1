"""MammothModa2: all of a model at the root, the denoiser's embedders sized by the language model's configuration."""

from types import SimpleNamespace

import torch

PIPELINE = "MammothModa2DiTPipeline"
CASE = "mammoth_moda2"
STREAMED = ""
UNUSED = ("llm_model.", "gen_vae.", "gen_tokenizer.")
WIDTH = 24
VAE = {
    "in_channels": 3, "out_channels": 3, "latent_channels": 4, "block_out_channels": [8], "norm_num_groups": 2,
    "down_block_types": ["DownEncoderBlock2D"], "up_block_types": ["UpDecoderBlock2D"],
}  # fmt: skip


def config_of(case):
    text = {
        "hidden_size": WIDTH, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
        "num_key_value_heads": 2, "vocab_size": 50, "head_dim": 12,
    }  # fmt: skip
    sizes = {**case.arguments("real")[1], "text_feat_dim": 40}
    return {
        "model_type": "mammothmoda2",
        "llm_config": {"model_type": "mammothmoda2_qwen3_vl", "text_config": text},
        "gen_vae_config": VAE,
        "gen_dit_config": sizes,
        "gen_image_condition_refiner_config": {"num_queries": 3, "num_layers": 1},
    }


def pipeline_of(folder, config):
    from vllm_omni.diffusion.models.mammoth_moda2 import pipeline_mammothmoda2_dit as module

    settings = SimpleNamespace(to_dict=lambda: dict(config))
    given = SimpleNamespace(model=str(folder), revision=None, tf_model_config=settings, cache_backend=None)
    module.get_local_device = lambda: torch.device("cpu")
    return module.MammothModa2DiTPipeline(od_config=given)


def make(case):
    made = pipeline_of("a folder", config_of(case)).gen_transformer
    made.written = config_of(case)
    return made


def files(real, sizes):
    state = {f"gen_transformer.{name}": tensor for name, tensor in real.state_dict().items()}
    yield "config.json", real.written
    yield "model.safetensors", {**state, "llm_model.x": torch.zeros(2), "gen_tokenizer.x": torch.zeros(2)}


def build(folder, upstream, config, weights):
    pipeline = pipeline_of(folder, config("config.json"))
    pipeline.load_weights(weights(""))
    return pipeline.gen_transformer
