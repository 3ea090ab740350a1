"""Small slips in the data script."""

from mutants.edit import swap, text
from mutants.mutant import (
    DATA,
    Mutant,
    mutant,
)

TOKENISE = "tokenize_bagel_prompt"
IDS = "ids = [_token_id(tokenizer, BEGIN_TOKEN), *ids, _token_id(tokenizer, END_TOKEN)]"


def data(name: str, items: tuple, rules: str, within: str, old: str, new: str = "") -> Mutant:
    """Return a mutant of the data script."""
    return mutant(name, items, rules, swap(DATA, within, old, new))


def script(name: str, items: tuple, rules: str, path: str, old: str, new: str = "") -> Mutant:
    """Return a mutant of a text file."""
    return mutant(name, items, rules, text(path, old, new))


MUTANTS = [
    # Data
    script("messages under another key, once more", ("D1",), "601", DATA, '"prompt": [', '"prompts": ['),
    script(
        "prompt without a role",
        ("D1",),
        "601",
        DATA,
        '"prompt": [{"role": "user", "content": text.strip()}]',
        '"prompt": [{"content": text.strip()}]',
    ),
    script(
        "prompt as text",
        ("D1",),
        "601",
        DATA,
        '"prompt": [{"role": "user", "content": text.strip()}]',
        '"prompt": text.strip()',
    ),
    script(
        "prompt as one message",
        ("D1",),
        "601",
        DATA,
        '"prompt": [{"role": "user", "content": text.strip()}]',
        '"prompt": {"role": "user", "content": text.strip()}',
    ),
    script(
        "message of the system",
        ("D1",),
        "601",
        DATA,
        '"prompt": [{"role": "user", "content": text.strip()}]',
        '"prompt": [{"role": "system", "content": text.strip()}]',
    ),
    script(
        "message without its text",
        ("D1",),
        "601",
        DATA,
        '"prompt": [{"role": "user", "content": text.strip()}]',
        '"prompt": [{"role": "user", "text": text.strip()}]',
    ),
    data("end token left out", ("D2", 43), "603", TOKENISE, IDS, "ids = [_token_id(tokenizer, BEGIN_TOKEN), *ids]"),
    data("begin token left out", ("D2",), "603", TOKENISE, IDS, "ids = [*ids, _token_id(tokenizer, END_TOKEN)]"),
    data(
        "markers exchanged",
        ("D2",),
        "603",
        TOKENISE,
        IDS,
        "ids = [_token_id(tokenizer, END_TOKEN), *ids, _token_id(tokenizer, BEGIN_TOKEN)]",
    ),
    script(
        "begin marker of another model", ("D2",), "603", DATA, 'BEGIN_TOKEN = "<|im_start|>"', 'BEGIN_TOKEN = "<s>"'
    ),
    data("no markers", ("D2",), "603", TOKENISE, IDS),
    data(
        "the tokenizer's own special tokens",
        ("D2",),
        "603",
        TOKENISE,
        "ids = tokenizer.encode(text.strip(), add_special_tokens=False)",
        "ids = tokenizer.encode(text.strip())",
    ),
    data(
        "special tokens twice",
        ("D2",),
        "603",
        TOKENISE,
        "ids = tokenizer.encode(text.strip(), add_special_tokens=False)",
        "ids = tokenizer.encode(text.strip(), add_special_tokens=True)",
    ),
    data(
        "prompt not stripped",
        ("D2",),
        "603",
        TOKENISE,
        "ids = tokenizer.encode(text.strip(), add_special_tokens=False)",
        "ids = tokenizer.encode(text, add_special_tokens=False)",
    ),
    data(
        "prompt in small letters",
        ("D2",),
        "603",
        TOKENISE,
        "ids = tokenizer.encode(text.strip(), add_special_tokens=False)",
        "ids = tokenizer.encode(text.strip().lower(), add_special_tokens=False)",
    ),
    data(
        "ids of the chat, once more",
        ("D2",),
        "603",
        TOKENISE,
        "ids = tokenizer.encode(text.strip(), add_special_tokens=False)",
        'ids = tokenizer.apply_chat_template([{"role": "user", "content": text.strip()}], tokenize=True)',
    ),
    script(
        "column under another name",
        ("D2", 28),
        "207",
        DATA,
        '"prompt_token_ids": prompt_token_ids',
        '"prompt_ids": prompt_token_ids',
    ),
    script("column left out", ("D2", 28), "207", DATA, '        "prompt_token_ids": prompt_token_ids,\n', ""),
    data(
        "column of something else",
        ("D2", 28),
        "207 603",
        "read_split",
        "build_row(text, split, len(rows), data_source, ids)",
        "build_row(text, split, len(rows), data_source, [])",
    ),
    data(
        "ids cut",
        (43,),
        "602",
        TOKENISE,
        'raise PromptTooLongError(f"{len(ids)} tokens where {max_length} are allowed: {text!r}")',
        "ids = ids[:max_length]",
    ),
    data(
        "ids cut by the tokenizer",
        (43,),
        "602",
        TOKENISE,
        "ids = tokenizer.encode(text.strip(), add_special_tokens=False)",
        "ids = tokenizer.encode(text.strip(), add_special_tokens=False, truncation=True, max_length=max_length)",
    ),
    data("ids returned cut", (43,), "602", TOKENISE, "return ids", "return ids[:max_length]"),
    data(
        "end token dropped when too long",
        (43,),
        "602",
        TOKENISE,
        'raise PromptTooLongError(f"{len(ids)} tokens where {max_length} are allowed: {text!r}")',
        "del ids[max_length:]",
    ),
    data(
        "text cut",
        (43,),
        "602",
        TOKENISE,
        "ids = tokenizer.encode(text.strip(), add_special_tokens=False)",
        "ids = tokenizer.encode(text.strip()[:max_length], add_special_tokens=False)",
    ),
]
