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
"""Make a few rows of training data for the smoke test of BAGEL-7B-MoT.

The captions go through the real data script of this model, so the smoke test covers that script as well.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PREPROCESSOR = Path(__file__).resolve().parents[2] / "examples/flowgrpo_trainer/data_process/bagel_ocr.py"
COLOURS = ("red", "green", "blue", "yellow", "black", "white")
OBJECTS = ("sign", "door", "cup", "van", "kite")


def captions(count: int) -> list[str]:
    """``count`` different prompts, of different lengths."""
    lines = []
    for i in range(count):
        colour, thing = COLOURS[i % len(COLOURS)], OBJECTS[i % len(OBJECTS)]
        place = " on a sunny day" * (i % 3)
        lines.append(f'a {colour} {thing} that says "{thing.upper()} {i}"{place}')
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description="dummy parquet files for BAGEL-7B-MoT")
    parser.add_argument("--local_save_dir", default="~/data/dummy_bagel")
    parser.add_argument("--model_path", default="~/models/tiny-random/BAGEL-MoT", help="folder with the tokenizer")
    parser.add_argument("--max_prompt_length", type=int, default=128)
    parser.add_argument("--train_size", type=int, default=8)
    parser.add_argument("--val_size", type=int, default=4)
    parser.add_argument("--data_source", default="jpeg_compressibility", help="names a reward that needs no model")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as raw:
        for split, count in (("train", args.train_size), ("test", args.val_size)):
            Path(raw, f"{split}.txt").write_text("\n".join(captions(count)) + "\n", encoding="utf-8")
        command = [sys.executable, str(PREPROCESSOR), "--input_dir", raw]
        command += ["--output_dir", os.path.expanduser(args.local_save_dir), "--data_source", args.data_source]
        command += ["--model_path", os.path.expanduser(args.model_path)]
        command += ["--max_prompt_length", str(args.max_prompt_length)]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
