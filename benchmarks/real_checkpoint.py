"""Write BAGEL in its released size with random bf16 weights, 29 GB, one tensor after another: names of the manifest.

    PYTHONPATH=WORKSHOP python benchmarks/real_checkpoint.py FOLDER MANIFEST BUILDER

Runs in the environment of the rollout. MANIFEST is a JSON object of shapes by name; BUILDER is the module that makes a
package's tiny checkpoint (``tests/special_e2e/build_…_tiny_random.py``), of which tokenizer and configuration are
taken, in the sizes of the release.
"""

from __future__ import annotations

import json
import math
import runpy
import sys
from pathlib import Path
from typing import Any

SIZES: dict[str, dict[str, Any]] = {
    "llm_config.json": {
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "max_position_embeddings": 32768,
        "max_window_layers": 28,
        "vocab_size": 152064,
    },
    "vit_config.json": {
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_hidden_layers": 26,
        "num_attention_heads": 16,
        "image_size": 980,
    },
    "config.json": {"max_latent_size": 64, "vit_max_num_patch_per_side": 70},
}
IDS = {
    "bos_token_id": "<|im_start|>",
    "eos_token_id": "<|im_end|>",
    "start_of_image": "<|vision_start|>",
    "end_of_image": "<|vision_end|>",
}
TEXT_PIECES = 512  # of the tokenizer; the embedding has the release's rows


def main(folder: Path, manifest: Path, builder: Path, sparse: bool = False) -> None:
    """Write the folder; ``sparse`` leaves the weights out, which then read as zeros and take no space."""
    import torch
    from safetensors.torch import save_file
    from vllm_omni.diffusion.models.bagel.autoencoder import AutoEncoder
    from vllm_omni.diffusion.models.bagel.pipeline_bagel import default_ae_params

    tiny = runpy.run_path(str(builder))
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    tokenizer = tiny["train_tokenizer"](TEXT_PIECES)
    tokenizer.save_pretrained(folder)
    files = tiny["CONFIG_FILES"]
    for name, values in SIZES.items():
        files[name].update(values)
    known = {**files, **{role: tokenizer.convert_tokens_to_ids(token) for role, token in IDS.items()}}
    known["vocab_size"] = SIZES["llm_config.json"]["vocab_size"]
    for name, content in files.items():
        (folder / name).write_text(json.dumps(tiny["fill"](content, known), indent=2), encoding="utf-8")
    decoder = AutoEncoder(default_ae_params()).state_dict()
    decoder = {name: value.detach().clone().bfloat16() for name, value in decoder.items()}
    save_file(decoder, folder / "ae.safetensors", metadata={"format": "pt"})
    write_weights(folder / "ema.safetensors", json.loads(manifest.read_text(encoding="utf-8")), sparse)


def write_weights(file: Path, shapes: dict[str, list[int]], sparse: bool = False) -> None:
    """Stream weights that keep activations finite: norms about 1, all else normal with a deviation of 0.02."""
    import torch

    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        begin, end = end, end + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    raw = json.dumps(header).encode()
    raw += b" " * (-len(raw) % 8)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    drawn = torch.Generator(device=device).manual_seed(1)
    with file.open("wb") as output:
        output.write(len(raw).to_bytes(8, "little") + raw)
        if sparse:
            output.truncate(8 + len(raw) + end)
            return
        for name, shape in shapes.items():
            value = torch.randn(shape, generator=drawn, device=device, dtype=torch.bfloat16)
            value = 1 + 0.1 * value if "norm" in name and name.endswith("weight") else 0.02 * value
            output.write(value.cpu().view(torch.uint8).numpy().data)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
