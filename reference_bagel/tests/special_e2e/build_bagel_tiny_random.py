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
"""Build a checkpoint of BAGEL-7B-MoT that is tiny, random and complete, without any download.

``BagelPipeline`` constructs every part of the model whether a rollout uses it or not, so every part is written: the
weights of training under their released names, the parts that training leaves out, the configuration files and a
tokenizer.
"""

import argparse
import json
import os
import tempfile

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, SiglipVisionConfig, SiglipVisionModel
from vllm_omni.diffusion.models.bagel.autoencoder import AutoEncoder
from vllm_omni.diffusion.models.bagel.pipeline_bagel import default_ae_params

from verl_omni.pipelines.bagel_flow_grpo.bagel_model import WEIGHTS, BagelForTraining, BagelTrainingConfig

DEFAULT_OUTPUT_DIR = "~/models/tiny-random/BAGEL-MoT"
WEIGHT_FILES = ("ema.safetensors", "ae.safetensors")

SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>"]
TOKEN_ROLES = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

# A string that starts with "$" stands for a value known once the tokenizer exists, or for another of these files.
CONFIG_FILES = {
    "generation_config.json": {"bos_token_id": "$bos_token_id", "eos_token_id": "$eos_token_id", "do_sample": False},
    "llm_config.json": {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_act": "silu",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 2048,
        "max_window_layers": 2,
        "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "sliding_window": 4096,
        "use_sliding_window": False,
        "use_cache": True,
        "qk_norm": True,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "vocab_size": "$vocab_size",
        "bos_token_id": "$bos_token_id",
        "eos_token_id": "$eos_token_id",
    },
    "vit_config.json": {
        "model_type": "siglip_vision_model",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_channels": 3,
        "image_size": 224,
        "patch_size": 14,
    },
    "config.json": {
        "architectures": ["BagelForConditionalGeneration"],
        "model_type": "bagel",
        "visual_gen": True,
        "visual_und": True,
        "latent_patch_size": 2,
        "max_latent_size": 32,
        "vit_max_num_patch_per_side": 16,
        "connector_act": "gelu_pytorch_tanh",
        "interpolate_pos": False,
        "timestep_shift": 1.0,
        "vae_config": {"z_channels": 16, "downsample": 8},
        "llm_config": "$llm_config.json",
        "vit_config": "$vit_config.json",
        "start_of_image_id": "$start_of_image",
        "end_of_image_id": "$end_of_image",
        "torch_dtype": "bfloat16",
    },
    "preprocessor_config.json": {
        "image_processor_type": "SiglipImageProcessor",
        "do_convert_rgb": True,
        "do_resize": True,
        "size": {"height": 224, "width": 224},
        "resample": 3,
        "do_rescale": True,
        "rescale_factor": 0.00392156862745098,
        "do_normalize": True,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    },
}

# Parameters of the pipeline that training has no use for: weight file, name, shape.
EXTRA_TENSORS = [
    ("ema.safetensors", "language_model.lm_head.weight", ["$vocab_size", 64]),
    ("ema.safetensors", "connector.fc1.weight", [64, 64]),
    ("ema.safetensors", "connector.fc1.bias", [64]),
    ("ema.safetensors", "connector.fc2.weight", [64, 64]),
    ("ema.safetensors", "connector.fc2.bias", [64]),
    ("ema.safetensors", "vit_pos_embed.pos_embed", [256, 64]),
]


def train_tokenizer(vocab_size: int) -> PreTrainedTokenizerFast:
    """Byte-level BPE over a handful of words; it can encode any text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    shapes, colours = ("circle", "square", "triangle", "star"), ("red", "green", "blue", "yellow")
    corpus = [f'a {colour} {shape} with the words "{shape.upper()} {colour}"' for colour in colours for shape in shapes]
    tokenizer.train_from_iterator(corpus, trainer=trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=CHAT_TEMPLATE, **TOKEN_ROLES)


def fill(value, known: dict):
    """Replace every "$name" inside ``value`` by what it stands for."""
    if isinstance(value, dict):
        return {key: fill(item, known) for key, item in value.items()}
    if isinstance(value, list):
        return [fill(item, known) for item in value]
    if isinstance(value, str) and value.startswith("$"):
        return fill(known[value[1:]], known)
    return value


def other_parts() -> dict[str, dict[str, torch.Tensor]]:
    """Random weights of the parts outside training: ``{weight file: {name: tensor}}``."""
    parts: dict[str, dict[str, torch.Tensor]] = {}

    part = SiglipVisionModel(SiglipVisionConfig(**CONFIG_FILES["vit_config.json"], vision_use_head=False))
    part = getattr(part, "vision_model", part)  # some versions of the library nest it
    state = parts.setdefault("ema.safetensors", {})
    state.update(
        {"vit_model.vision_model." + name: tensor.detach().clone() for name, tensor in part.state_dict().items()}
    )

    part = AutoEncoder(default_ae_params())
    state = parts.setdefault("ae.safetensors", {})
    state.update({name: tensor.detach().clone() for name, tensor in part.state_dict().items()})
    return parts


def build(output_dir: str, seed: int = 42, vocab_size: int = 512) -> None:
    """Write the checkpoint into the empty folder ``output_dir``."""
    torch.manual_seed(seed)
    tokenizer = train_tokenizer(vocab_size)
    tokenizer.save_pretrained(output_dir)
    known = {
        **CONFIG_FILES,
        "vocab_size": len(tokenizer),
        "bos_token_id": tokenizer.convert_tokens_to_ids("<|im_start|>"),
        "end_of_image": tokenizer.convert_tokens_to_ids("<|vision_end|>"),
        "eos_token_id": tokenizer.convert_tokens_to_ids("<|im_end|>"),
        "start_of_image": tokenizer.convert_tokens_to_ids("<|vision_start|>"),
    }
    for name in CONFIG_FILES:
        with open(os.path.join(output_dir, name), "w", encoding="utf-8") as file:
            json.dump(fill(CONFIG_FILES[name], known), file, indent=2)

    # The module reads its sizes from the files just written, as it does from a released checkpoint.
    module = BagelForTraining(BagelTrainingConfig.from_model_path(output_dir))
    # Norms of a new module are all ones, and then it would not show which of them a weight went to.
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.25 * torch.randn_like(parameter))
    weights = other_parts()
    trained = {name: tensor.contiguous() for name, tensor in WEIGHTS.tensors(module.state_dict().items())}
    for i, file in enumerate(WEIGHTS.files):
        weights.setdefault(file, {}).update({name: trained[name] for name in sorted(trained)[i :: len(WEIGHTS.files)]})
    for file, name, shape in EXTRA_TENSORS:
        weights.setdefault(file, {})[name] = 0.02 * torch.randn(fill(shape, known))
    for file, state in weights.items():
        save_file(state, os.path.join(output_dir, file), metadata={"format": "pt"})

    # Training's own loader is strict: it refuses what the tables do not cover.
    BagelForTraining.from_pretrained(output_dir)


def ensure_checkpoint(output_dir: str, seed: int, vocab_size: int, force: bool) -> None:
    """Build the checkpoint unless a complete one is there; an interrupted build leaves nothing behind."""
    if not force and all(os.path.isfile(os.path.join(output_dir, name)) for name in (*WEIGHT_FILES, *CONFIG_FILES)):
        return
    os.makedirs(output_dir, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output_dir) as scratch:
        build(scratch, seed, vocab_size)
        # Weights go last: they mark the checkpoint as complete.
        for name in sorted(os.listdir(scratch), key=lambda name: name in WEIGHT_FILES):
            os.replace(os.path.join(scratch, name), os.path.join(output_dir, name))


def main() -> None:
    parser = argparse.ArgumentParser(description="tiny random checkpoint of BAGEL-7B-MoT")
    parser.add_argument("--output-dir", default=DEFAULT_OUTPUT_DIR)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--vocab-size", type=int, default=512, help="most tokens that the tokenizer learns")
    parser.add_argument("--force", action="store_true", help="build it again if it is there")
    args = parser.parse_args()
    output_dir = os.path.expanduser(args.output_dir)
    ensure_checkpoint(output_dir, args.seed, args.vocab_size, args.force)
    print(f"tiny checkpoint: {output_dir}")


if __name__ == "__main__":
    main()
