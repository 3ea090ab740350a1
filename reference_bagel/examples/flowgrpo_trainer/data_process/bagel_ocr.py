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
"""Turn the FlowGRPO OCR prompts into parquet files for BAGEL-7B-MoT.

The input folder holds ``train.txt`` and ``test.txt``, one prompt a line, with the words that the image has to show in
double quotes. https://github.com/yifan123/flow_grpo/tree/main/dataset/ocr has them.

The rollout pipeline encodes the prompt text itself, without a chat template. Each row therefore carries, beside the
chat messages, the ids of that very encoding in ``prompt_token_ids``; training reads this column.
"""

import argparse
import os
import re

import datasets
from transformers import AutoTokenizer

BEGIN_TOKEN = "<|im_start|>"
END_TOKEN = "<|im_end|>"
# A prompt that spells one of these out would reach the two sides as different tokens.
MARKERS = ("<|im_start|>", "<|vision_end|>", "<|im_end|>", "<|vision_start|>")
# No text at all, once stripped: the unconditional branch of training has none either.
NEGATIVE_PROMPT = " "


class PromptTooLongError(ValueError):
    """The prompt has more tokens than allowed. Cutting it would lose its end, which the rollout never does."""


def extract_ocr_solution(text: str) -> str:
    """Return the words that the image has to show: the first quotation in ``text``.

    Raises:
        ValueError: ``text`` quotes nothing.
    """
    quotation = re.search(r'"([^"]*)"|“([^”]*)”', text)
    words = (quotation[1] or quotation[2] or "").strip() if quotation else ""
    if not words:
        raise ValueError(f"nothing in double quotes in {text!r}")
    return words


def _token_id(tokenizer, token: str) -> int:
    """Id of a special token; an unknown one would silently become another token."""
    token_id = tokenizer.convert_tokens_to_ids(token)
    if token_id is None or tokenizer.convert_ids_to_tokens(token_id) != token:
        raise ValueError(f"the tokenizer does not know {token!r}")
    return token_id


def tokenize_bagel_prompt(tokenizer, text: str, max_length: int = 256) -> list[int]:
    """Encode one prompt exactly as the rollout pipeline does.

    Args:
        tokenizer: tokenizer of the checkpoint.
        text: the bare prompt, not a chat.
        max_length: most ids allowed.

    Raises:
        PromptTooLongError: there are more ids; they are never cut.
        ValueError: the tokenizer or the text does not suit the model.
    """
    for marker in MARKERS:
        if marker in text:
            raise ValueError(f"the prompt itself holds {marker!r}: {text!r}")
    ids = tokenizer.encode(text.strip(), add_special_tokens=False)
    ids = [_token_id(tokenizer, BEGIN_TOKEN), *ids, _token_id(tokenizer, END_TOKEN)]
    if len(ids) > max_length:
        raise PromptTooLongError(f"{len(ids)} tokens where {max_length} are allowed: {text!r}")
    if getattr(tokenizer, "chat_template", None):
        # The agent loop sends the prompt as a chat and pads it to the same length; it does not cut either.
        messages = [{"role": "user", "content": text.strip()}]
        chat = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        sent = len(tokenizer.encode(chat, add_special_tokens=False))
        if sent > max_length:
            raise PromptTooLongError(f"{sent} tokens as a chat where {max_length} are allowed: {text!r}")
    return ids


def build_row(text: str, split: str, index: int, data_source: str, prompt_token_ids: list[int]) -> dict:
    """One row of the parquet file."""
    return {
        "data_source": data_source,
        "prompt": [{"role": "user", "content": text.strip()}],
        "negative_prompt": [{"role": "user", "content": NEGATIVE_PROMPT}],
        "prompt_token_ids": prompt_token_ids,
        "ability": "ocr",
        "reward_model": {"style": "model", "ground_truth": extract_ocr_solution(text)},
        "extra_info": {"split": split, "index": index},
    }


def read_split(path: str, split: str, tokenizer, max_length: int, on_long: str, data_source: str) -> list[dict]:
    """Rows for the prompts in a text file; blank lines are passed over.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line cannot be used, or none is left; the message names file and line.
    """
    if not os.path.isfile(path):
        raise FileNotFoundError(f"{path} is missing; get it from the dataset's page named at the top of this script")
    rows: list[dict] = []
    dropped = 0
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            text = line.rstrip("\r\n")
            if not text.strip():
                continue
            try:
                ids = tokenize_bagel_prompt(tokenizer, text, max_length)
                rows.append(build_row(text, split, len(rows), data_source, ids))
            except PromptTooLongError as error:
                if on_long == "error":
                    raise ValueError(f"{path}:{number}: {error} (--on_long drop leaves such prompts out)") from error
                dropped += 1
            except ValueError as error:
                raise ValueError(f"{path}:{number}: {error}") from error
    if not rows:
        raise ValueError(f"{path}: no usable prompt")
    print(f"{split}: {len(rows)} prompts, {dropped} dropped for their length")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="OCR prompts to parquet files for BAGEL-7B-MoT")
    parser.add_argument("--model_path", required=True, help="checkpoint folder; only its tokenizer is used")
    parser.add_argument("--input_dir", default="~/data/ocr", help="folder with train.txt and test.txt")
    parser.add_argument("--output_dir", default="~/data/ocr/bagel", help="where the parquet files go")
    parser.add_argument("--max_prompt_length", type=int, default=256, help="most tokens of a prompt")
    parser.add_argument(
        "--on_long",
        choices=("error", "drop"),
        default="error",
        help="stop at a prompt that is too long, or leave it out",
    )
    parser.add_argument("--data_source", default="flow_grpo/ocr", help="name by which the reward is chosen")
    parser.add_argument("--hdfs_dir", default=None, help="copy the result there as well")
    args = parser.parse_args()
    input_dir, output_dir = os.path.expanduser(args.input_dir), os.path.expanduser(args.output_dir)

    tokenizer = AutoTokenizer.from_pretrained(os.path.expanduser(args.model_path), trust_remote_code=True)
    os.makedirs(output_dir, exist_ok=True)
    for split in ("train", "test"):
        path = os.path.join(input_dir, f"{split}.txt")
        rows = read_split(path, split, tokenizer, args.max_prompt_length, args.on_long, args.data_source)
        datasets.Dataset.from_list(rows).to_parquet(os.path.join(output_dir, f"{split}.parquet"))

    if args.hdfs_dir is not None:
        from verl.utils.hdfs_io import copy, makedirs

        makedirs(args.hdfs_dir)
        copy(src=output_dir, dst=args.hdfs_dir)


if __name__ == "__main__":
    main()
