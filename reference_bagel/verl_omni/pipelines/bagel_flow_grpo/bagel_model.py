# Copyright 2026 Bytedance Ltd. and/or its affiliates
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""BagelForTraining: the image-generation path of BAGEL-7B-MoT as a standalone module.

It computes what ``BagelPipeline`` of vllm-omni computes, without its key-value cache:
one sample is ``[text, start_of_image, latents, end_of_image]``; text attends causally to text, everything after
it attends to everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch.nn as nn
from torch import Tensor

from verl_omni.pipelines.flow_grpo_runtime.composed_layers import (
    PositionTable,
    RMSNorm,
    TimestepEmbedder,
    sinusoidal_features,
)
from verl_omni.pipelines.flow_grpo_runtime.composed_module import (
    ComposedModule,
    SavedSizes,
    lookup,
    read_json,
    required_sizes,
    section_or_file,
    token_id,
)
from verl_omni.pipelines.flow_grpo_runtime.layouts import TextLengthLayout, plain_tables
from verl_omni.pipelines.flow_grpo_runtime.released import ReleasedWeights, prefix_rules
from verl_omni.pipelines.flow_grpo_runtime.two_streams import TwoStreamLayer
from verl_omni.pipelines.non_diffusers_model_base import NonDiffusersModelBase

# Checkpoint prefix -> training prefix. The table loads the checkpoint, names the weights that are saved, and names
# those that reach the rollout engine. What does not end in a dot is a whole name. The longest that fits decides.
KEY_MAP: tuple[tuple[str, str], ...] = (
    ("latent_pos_embed.", "latent_pos_embed."),
    ("time_embedder.", "time_embedder."),
    ("llm2vae.", "llm2vae."),
    ("vae2llm.", "vae2llm."),
    ("language_model.model.", ""),
)

# Checkpoint prefix -> why training has no use for it. A key that neither table knows stops the load.
IGNORED_KEYS: tuple[tuple[str, str], ...] = (
    ("connector.", "image understanding, not used for image generation"),
    ("language_model.lm_head.", "predicts text, not used for image generation"),
    ("vit_model.", "image understanding, not used for image generation"),
    ("vit_pos_embed.", "image understanding, not used for image generation"),
)

WEIGHTS = ReleasedWeights(
    module="BagelForTraining",
    rules=prefix_rules(KEY_MAP, IGNORED_KEYS),
    files=("ema.safetensors",),
    saved="ema.safetensors",
)


@dataclass
class BagelTrainingConfig(SavedSizes):
    """Sizes of the model; the defaults are those of BAGEL-7B-MoT."""

    hidden_size: int = 3584
    intermediate_size: int = 18944
    num_hidden_layers: int = 28
    num_attention_heads: int = 28
    num_key_value_heads: int = 4
    vocab_size: int = 152064
    rms_norm_eps: float = 1e-06
    rope_theta: float = 1000000.0
    latent_patch_size: int = 2
    max_latent_size: int = 64
    latent_channel: int = 16
    vae_downsample: int = 8
    start_of_image_id: int = 151652  # <|vision_start|>
    end_of_image_id: int = 151653  # <|vision_end|>

    @classmethod
    def from_model_path(cls, model_path: str) -> BagelTrainingConfig:
        """Read the sizes from a released checkpoint's configuration, or from what :meth:`save_pretrained` wrote."""
        root = read_json(model_path, "config.json")
        saved = cls.saved(root)
        if saved is not None:
            return saved
        text = section_or_file(model_path, root, "llm_config.json", "llm_config")
        return cls(
            **required_sizes(text, "llm_config.json"),
            latent_patch_size=lookup(root, "latent_patch_size", 2),
            max_latent_size=lookup(root, "max_latent_size", 32),
            latent_channel=lookup(root, "vae_config.z_channels", 16),
            vae_downsample=lookup(root, "vae_config.downsample", 8),
            start_of_image_id=token_id(
                model_path, "<|vision_start|>", root.get("start_of_image_id", cls.start_of_image_id)
            ),
            end_of_image_id=token_id(model_path, "<|vision_end|>", root.get("end_of_image_id", cls.end_of_image_id)),
        )


class BagelMoTLayer(TwoStreamLayer):
    """Layer of BAGEL-7B-MoT: latents have weights of their own, with ``_moe_gen``."""

    latent_weights = "_moe_gen"
    qkv_bias = True


def timestep_features(timestep: Tensor) -> Tensor:
    """Features ``(B, 256)`` float32 of noise levels ``(B,)``.

    The adapter computes them before the module is called, because mixed-precision wrappers round every floating
    input of ``forward`` to bf16: the features bear that, the noise level itself does not.
    """
    return sinusoidal_features(timestep.float(), 256, 10000.0)


class BagelForTraining(ComposedModule, NonDiffusersModelBase):
    """Velocity predictor for FlowGRPO training.

    Text padding changes nothing: each sample's image tokens stand at that sample's own text length, and padded keys
    are hidden. The computation follows the dtype of the parameters.
    """

    _no_split_modules = ["BagelMoTLayer"]
    _supports_gradient_checkpointing = True
    config_class = BagelTrainingConfig
    weights = WEIGHTS
    position_table = "latent_pos_embed"

    def __init__(self, config: BagelTrainingConfig):
        super().__init__()
        self.config = config
        hidden = config.hidden_size
        self.embed_tokens = nn.Embedding(config.vocab_size, hidden)
        self.layers = nn.ModuleList(BagelMoTLayer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(hidden, config.rms_norm_eps)
        self.norm_moe_gen = RMSNorm(hidden, config.rms_norm_eps)
        self.time_embedder = TimestepEmbedder(256, hidden)
        self.vae2llm = nn.Linear(config.patch_latent_dim, hidden)
        self.llm2vae = nn.Linear(hidden, config.patch_latent_dim)
        self.latent_pos_embed = PositionTable(config.max_latent_size, hidden)

    def forward(
        self,
        hidden_states: Tensor,
        timestep: Tensor,
        text_token_ids: Tensor | None,
        latent_pos_ids: Tensor,
        text_attention_mask: Tensor | None = None,
    ) -> tuple[Tensor]:
        """Predict the velocity of every latent token; arguments and result as :class:`ComposedModule` says."""
        device = hidden_states.device
        tokens = self.with_markers(
            text_token_ids, hidden_states, self.config.start_of_image_id, self.config.end_of_image_id
        )
        text_length = tokens.shape[1] - 2
        context = self.embed_tokens(tokens)

        features = timestep_features(timestep) if timestep.ndim == 1 else timestep
        latents = self.vae2llm(hidden_states.to(context.dtype))
        latents = latents + self.time_embedder(features.to(context.dtype))[:, None]
        latents = (latents + self.latent_pos_embed(latent_pos_ids)).to(context.dtype)

        tables = partial(plain_tables, config=self.config)
        layout = TextLengthLayout(
            text_length, text_attention_mask, hidden_states.shape[1], tables, device, before=1, after=1
        )
        for layer, recomputed in self.layers_to_recompute():
            if recomputed:
                context, latents = self._checkpointed_call(layer, context, latents, layout)
            else:
                context, latents = layer(context, latents, layout, self._checkpointed_call)
        return (self.llm2vae(self.norm_moe_gen(latents)),)
