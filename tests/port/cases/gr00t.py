"""Gr00tN1d7ActionHead: the three modules that its loop calls in turn, joined as the loop joins them."""

import sys
from types import SimpleNamespace
from unittest.mock import MagicMock

import torch

# Not installed here; the real pipeline normalises observations with it.
sys.modules.update({name: MagicMock() for name in ("scipy", "scipy.spatial", "scipy.spatial.transform")})

MODULE = "vllm_omni.diffusion.models.gr00t.modeling.gr00t_n1d7"
CLASS = "Gr00tN1d7ActionHead"
VERSIONS = ("0.30.0",)
HORIZON, WIDTH, CONTEXT = 4, 6, 20


def arguments(side):
    sizes = {
        "hidden_size": 24, "input_embedding_dim": 32, "backbone_embedding_dim": CONTEXT, "max_action_dim": WIDTH,
        "max_state_dim": 5, "state_history_length": 1, "action_horizon": HORIZON, "max_num_embodiments": 3,
        "num_inference_timesteps": 4, "num_timestep_buckets": 1000, "use_vlln": True, "max_seq_len": 16,
        "add_pos_embed": True, "use_alternate_vl_dit": True, "attend_text_every_n_blocks": 2,
        "vl_self_attention_cfg": {"num_layers": 1, "num_attention_heads": 2, "attention_head_dim": 10},
        "diffusion_model_cfg": {
            "positional_embeddings": None, "num_layers": 4, "num_attention_heads": 4, "attention_head_dim": 8,
            "norm_type": "ada_norm", "output_dim": 24, "interleave_self_attention": True,
        },
    }  # fmt: skip
    return (SimpleNamespace(**sizes),), {}


def call(model, state, actions, bucket, embodiment, context, images, attended):
    state = model.state_encoder(state, embodiment)
    features = model.action_encoder(actions, bucket, embodiment)
    features = features + model.position_embedding(torch.arange(HORIZON))[None]
    output = model.model(
        hidden_states=torch.cat((state, features), dim=1),
        encoder_hidden_states=model.vl_self_attention(model.vlln(context)),
        timestep=bucket,
        image_mask=images,
        backbone_attention_mask=attended,
    )
    return model.action_decoder(output, embodiment)[:, -HORIZON:]


def inputs(model):
    generator = torch.Generator().manual_seed(1)
    yield {
        "state": torch.randn(2, 1, 5, generator=generator),
        "actions": torch.randn(2, HORIZON, WIDTH, generator=generator),
        "bucket": torch.tensor([250, 750]),
        "embodiment": torch.tensor([2, 0]),
        "context": torch.randn(2, 7, CONTEXT, generator=generator),
        "images": torch.tensor([[True] * 3 + [False] * 4] * 2),
        "attended": torch.tensor([[True] * 7, [True] * 6 + [False]]),
    }
