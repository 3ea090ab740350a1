"""The data script and the rows that it writes."""

from mutants.edit import add, line, swap
from mutants.mutant import DATA, mutant

IDS = "ids = [_token_id(tokenizer, BEGIN_TOKEN), *ids, _token_id(tokenizer, END_TOKEN)]"
TOO_LONG = """
if len(ids) > max_length:
    raise PromptTooLongError(f"{len(ids)} tokens where {max_length} are allowed: {text!r}")
"""
TOKENISE = "tokenize_bagel_prompt"
ROW = "build_row"
MESSAGES = '[{"role": "user", "content": text.strip()}]'


MUTANTS = [
    # Data
    mutant("prompt stored as text", ("D1",), "601", swap(DATA, ROW, MESSAGES, "text.strip()")),
    mutant(
        "messages under another key",
        ("D1",),
        "601",
        line(
            DATA,
            ROW,
            'return {"data_source": data_source, "prompt": [{"role": "user", "content": text.strip()}],'
            '"negative_prompt": [{"role": "user", "content": NEGATIVE_PROMPT}], "prompt_token_ids": prompt_token_ids,'
            '"ability": "ocr", "reward_model": {"style": "model", "ground_truth": extract_ocr_solution(text)},'
            '"extra_info": {"split": split, "index": index}}',
            'return {"data_source": data_source, "messages": [{"role": "user", "content": text.strip()}],'
            '"prompt_token_ids": prompt_token_ids,'
            '"ability": "ocr", "reward_model": {"style": "model", "ground_truth": extract_ocr_solution(text)},'
            '"extra_info": {"split": split, "index": index}}',
        ),
    ),
    mutant(
        "one message instead of a list",
        ("D1",),
        "601",
        swap(DATA, ROW, MESSAGES, '{"role": "user", "content": text.strip()}'),
    ),
    mutant("messages without roles", ("D1",), "601", swap(DATA, ROW, MESSAGES, '[{"text": text.strip()}]')),
    mutant(
        "messages as JSON",
        ("D1",),
        "601",
        add(DATA, "", "import json", first=True),
        swap(DATA, ROW, MESSAGES, f"json.dumps({MESSAGES})"),
    ),
    mutant(
        "ids not stored",
        ("D2", 28),
        "207",
        line(
            DATA,
            ROW,
            'return {"data_source": data_source, "prompt": [{"role": "user", "content": text.strip()}],'
            '"negative_prompt": [{"role": "user", "content": NEGATIVE_PROMPT}], "prompt_token_ids": prompt_token_ids,'
            '"ability": "ocr", "reward_model": {"style": "model", "ground_truth": extract_ocr_solution(text)},'
            '"extra_info": {"split": split, "index": index}}',
            'return {"data_source": data_source, "prompt": [{"role": "user", "content": text.strip()}],'
            '"negative_prompt": [{"role": "user", "content": NEGATIVE_PROMPT}],'
            '"ability": "ocr", "reward_model": {"style": "model", "ground_truth": extract_ocr_solution(text)},'
            '"extra_info": {"split": split, "index": index}}',
        ),
    ),
    mutant(
        "column renamed by the preprocessor",
        ("D2", 28),
        "207",
        swap(DATA, ROW, '"prompt_token_ids"', '"input_ids"'),
    ),
    mutant(
        "ids of the chat",
        ("D2",),
        "603",
        line(
            DATA,
            TOKENISE,
            "ids = tokenizer.encode(text.strip(), add_special_tokens=False)\n" + IDS,
            'ids = tokenizer.apply_chat_template([{"role": "user", "content": text.strip()}], tokenize=True)',
        ),
    ),
    mutant(
        "end token forgotten",
        ("D2",),
        "603",
        line(DATA, TOKENISE, IDS, "ids = [_token_id(tokenizer, BEGIN_TOKEN), *ids]"),
    ),
    mutant(
        "other markers around the prompt",
        ("D2",),
        "603",
        line(
            DATA,
            "",
            'BEGIN_TOKEN = "<|im_start|>"\nEND_TOKEN = "<|im_end|>"',
            'BEGIN_TOKEN = "<|vision_start|>"\nEND_TOKEN = "<|vision_end|>"',
        ),
    ),
    mutant(
        "tokenizer's own begin and end",
        ("D2",),
        "603",
        line(DATA, TOKENISE, IDS, "ids = [tokenizer.bos_token_id, *ids, tokenizer.eos_token_id]"),
    ),
    mutant("ids cut at the maximum length", (43,), "602", line(DATA, TOKENISE, TOO_LONG, "ids = ids[:max_length]")),
    mutant(
        "tokenizer cuts",
        (43,),
        "602",
        swap(
            DATA,
            TOKENISE,
            "tokenizer.encode(text.strip(), add_special_tokens=False)",
            "tokenizer.encode(text.strip(), add_special_tokens=False, truncation=True, max_length=max_length - 2)",
        ),
    ),
    mutant(
        "cut where the row is made",
        (43,),
        "602",
        line(DATA, TOKENISE, TOO_LONG, ""),
        line(
            DATA,
            "read_split",
            "ids = tokenize_bagel_prompt(tokenizer, text, max_length)",
            "ids = tokenize_bagel_prompt(tokenizer, text, max_length)[:max_length]",
        ),
    ),
    mutant(
        "end deleted when too long",
        (43,),
        "602",
        line(DATA, TOKENISE, TOO_LONG, "if len(ids) > max_length:\n    del ids[max_length:]"),
    ),
]
