"""Choose tiles of vllm-omni's MoT matrix product for this card, and write the file that the engine looks for.

    OMNI_SCAFFOLD_CUDA_ENV/bin/python benchmarks/mot_gemm.py --model FOLDER --out DIR
    VLLM_TUNED_CONFIG_FOLDER=DIR bash examples/flowgrpo_trainer/…/run_….sh

Runs in the environment of the rollout, on the card. FOLDER is a checkpoint with ``llm_config.json``, which gives the
four products of a layer; a product is one of a text token at each end and the tokens of an image between them, as every
branch of a denoising step has it. Every choice is compared with a product in float32 before it counts. The wheel of
vllm-omni 0.27.0rc1 brings no file of its own for any card, and says so in its log.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
from contextlib import suppress
from pathlib import Path
from typing import Any

FEW = (16, 64, 256)  # rows that keep what the engine takes without a file; it takes the entry nearest to its own
PROCESSES = 8  # that compile beside one another
WRONG = 2e-2  # relative, in the 2-norm; bfloat16 products are a tenth of that apart


def shapes(config: dict[str, Any]) -> list[tuple[int, int]]:
    """``(K, N)`` of the products of a layer: query, key and value; output; gate and up; down."""
    hidden, middle, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    ends = hidden + 2 * (hidden // heads) * config["num_key_value_heads"]
    return [(hidden, ends), (hidden, hidden), (hidden, 2 * middle), (middle, hidden)]


def choices() -> list[dict[str, int]]:
    """Tiles that fit the shared memory of a card of 228 KB, without those that leave a warp idle."""
    found = []
    for rows, columns, depth, warps, stages in itertools.product(
        (64, 128, 256), (64, 128, 256), (64, 128), (4, 8), (3, 4)
    ):
        held = 2 * stages * depth * (rows + columns)
        per_warp = rows * columns // warps
        if held <= 220_000 and 1024 <= per_warp <= 4096:
            tile = {"BLOCK_SIZE_M": rows, "BLOCK_SIZE_N": columns, "BLOCK_SIZE_K": depth}
            found.append({**tile, "GROUP_SIZE_M": 8, "num_warps": warps, "num_stages": stages})
    return found


def product(k: int, n: int, rows: int) -> tuple[Any, Any]:
    """A call of the engine's product for a configuration, and how far its result is from float32."""
    import torch
    from vllm_omni.diffusion.layers.mot.ops.mot_gemm import invoke_mot_gemm

    random = torch.Generator("cuda").manual_seed(0)
    given = torch.randn(rows, k, generator=random, device="cuda", dtype=torch.bfloat16)
    text, image = (torch.randn(n, k, generator=random, device="cuda", dtype=torch.bfloat16) * k**-0.5 for _ in range(2))
    ends = torch.tensor([0, rows - 1], device="cuda")
    between = torch.arange(1, rows - 1, device="cuda")
    result = torch.empty(rows, n, device="cuda", dtype=torch.bfloat16)
    exact = given.float() @ image.float().T
    exact[ends] = given[ends].float() @ text.float().T
    flags = ("use_fp8_w8a8", "use_int8_w8a8", "use_int8_w8a16", "use_int4_w4a16")
    flags += ("A_per_channel_quant", "B_per_channel_quant")

    def call(config: dict[str, int] | None) -> None:
        tensors = (given, text.T, image.T, result, None, None, ends, between, None, None, None)
        invoke_mot_gemm(*tensors, **dict.fromkeys(flags, False), config=config)

    def distance() -> float:
        return float((result.float() - exact).norm() / exact.norm())

    return call, distance


def tune(k: int, n: int, rows: int) -> tuple[dict[str, int], float, float]:
    """The fastest configuration, its seconds, and those of what the engine takes without a file."""
    import torch
    from triton.testing import do_bench

    call, distance = product(k, n, rows)

    def milliseconds(config: dict[str, int] | None) -> float:
        call(config)
        torch.cuda.synchronize()
        if not distance() < WRONG:
            return float("inf")
        return float(do_bench(lambda: call(config), warmup=5, rep=25, return_mode="median"))

    timed = []
    for config in choices():
        try:
            timed.append((milliseconds(config), config))
        except Exception as error:  # of the compiler, for a tile that does not fit
            print(f"left out {config}: {str(error).splitlines()[0][:100]}")
    best, config = min(timed, key=lambda pair: pair[0])
    return config, best / 1e3, milliseconds(None) / 1e3


def compiled(job: tuple[tuple[int, int, int], list[dict[str, int]]]) -> None:
    """Call some configurations once, so that the compiler keeps them on disk."""
    call, _ = product(*job[0])
    for config in job[1]:
        with suppress(Exception):  # `tune` says what it is
            call(config)


def compile_all(k: int, n: int, rows: int) -> None:
    """Have every configuration compiled, several at a time."""
    every = choices()
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        pool.map(compiled, [((k, n, rows), every[part::PROCESSES]) for part in range(PROCESSES)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--rows", type=int, default=1026, help="tokens of a branch; 1026 for 512×512 (default)")
    asked = parser.parse_args()

    from vllm_omni.diffusion.layers.mot.ops.mot_gemm import (
        build_config_filename,
        get_device_name,
        get_mot_default_config,
    )

    table: dict[str, dict[str, dict[str, int]]] = {}
    products = shapes(json.loads((asked.model / "llm_config.json").read_text(encoding="utf-8")))
    compile_all(*products[1], asked.rows)
    print("| K | N | as it comes, ms | TFLOP/s | chosen, ms | TFLOP/s | tile |\n|---|---|---|---|---|---|---|")
    for k, n in products:
        config, chosen, default = tune(k, n, asked.rows)
        work = 2 * asked.rows * k * n / 1e12
        tile = "×".join(str(config[f"BLOCK_SIZE_{side}"]) for side in "MNK")
        tile += f", {config['num_warps']} warps, {config['num_stages']} stages"
        times = f"{default * 1e3:.3f} | {work / default:.0f} | {chosen * 1e3:.3f} | {work / chosen:.0f}"
        print(f"| {k} | {n} | {times} | {tile} |", flush=True)
        table[f"{k}_{n}"] = {
            **{str(few): get_mot_default_config(few, n, k) for few in FEW},
            str(asked.rows): config,
        }
    asked.out.mkdir(parents=True, exist_ok=True)
    place = asked.out / build_config_filename(get_device_name(), "w16a16")
    place.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {place}")


if __name__ == "__main__":
    main()
