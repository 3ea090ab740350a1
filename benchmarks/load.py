"""Time ``from_pretrained`` and the private memory it leaves, each implementation in a process of its own.

    python benchmarks/load.py --folder /fast/disk/bagel          # writes a random checkpoint there first if it is empty
    VERL_OMNI_SRC=~/verl-omni python benchmarks/load.py --folder /fast/disk/bagel

The checkpoint has the names and shapes of the module's own parameters, bf16: 25.4 GiB at full size, a few MiB with
``--size tiny`` (the default without a GPU). Private memory is Private_Clean + Private_Dirty + swapped pages of
``/proc/self/smaps_rollup``; pages of the mapped checkpoint that nobody wrote to are shared and do not count.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import struct
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from train_step import SIZES, implementations

CHUNK = os.urandom(1 << 20) * 64


def write_checkpoint(folder: Path, size: dict) -> int:
    """Write configuration and weights; returns the bytes of the weights."""
    import torch

    module = implementations()["rendered"]
    config = module.BagelTrainingConfig(**{**size, "max_latent_size": 64})
    with torch.device("meta"):
        state = module.BagelForTraining(config).state_dict()
    folder.mkdir(parents=True, exist_ok=True)
    text_keys = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    text_keys += ("num_key_value_heads", "vocab_size", "rms_norm_eps", "rope_theta")
    text = {key: getattr(config, key) for key in text_keys}
    root = {"llm_config": text, "max_latent_size": 64, "vae_config": {"z_channels": 16, "downsample": 8}}
    root |= {"start_of_image_id": config.start_of_image_id, "end_of_image_id": config.end_of_image_id}
    (folder / "config.json").write_text(json.dumps(root))
    (folder / "llm_config.json").write_text(json.dumps(text))
    header, offset = {}, 0
    for name, tensor in state.items():
        end = offset + 2 * tensor.numel()
        shape = list(tensor.shape)
        [key] = module.WEIGHTS.checkpoint_keys(name)
        header[key] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    raw = json.dumps(header).encode()
    raw += b" " * (-len(raw) % 8)
    with (folder / "ema.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(raw)) + raw)
        left = offset
        while left:
            left -= file.write(CHUNK[: min(left, len(CHUNK))])
    return offset


def private_bytes() -> int:
    """Private memory of this process in bytes."""
    rows = Path("/proc/self/smaps_rollup").read_text().splitlines()
    kept = ("Private_Clean:", "Private_Dirty:", "Swap:")
    return sum(int(row.split()[1]) * 1024 for row in rows if row.startswith(kept))


def load(name: str, folder: str, results: multiprocessing.Queue) -> None:
    """Load once and report seconds, private bytes and the seconds until a GPU holds the weights."""
    import torch

    module = implementations()[name]
    before, start = private_bytes(), time.perf_counter()
    model = module.BagelForTraining.from_pretrained(folder, torch_dtype=torch.bfloat16)
    seconds = time.perf_counter() - start
    figures = {"seconds": seconds, "private_gib": (private_bytes() - before) / 2**30}
    if torch.cuda.is_available():
        start = time.perf_counter()
        model.to("cuda")
        torch.cuda.synchronize()
        figures["to_device_seconds"] = time.perf_counter() - start
    results.put(figures)


def main() -> None:
    """Write the checkpoint if needed, load it with each implementation, print the figures."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--size", choices=sorted(SIZES), default="full" if torch.cuda.is_available() else "tiny")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if not (args.folder / "ema.safetensors").exists():
        start = time.perf_counter()
        size = write_checkpoint(args.folder, SIZES[args.size])
        print(f"wrote {size / 2**30:.2f} GiB in {time.perf_counter() - start:.0f} s")
    context = multiprocessing.get_context("spawn")
    rows = {}
    for name in implementations():
        results = context.Queue()
        process = context.Process(target=load, args=(name, str(args.folder), results))
        process.start()
        rows[name] = results.get(timeout=900)
        process.join()
        print(f"{name:13s} " + "  ".join(f"{key} {value:.2f}" for key, value in rows[name].items()), flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
