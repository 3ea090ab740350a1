"""A switch stands one step away: in what `get` answers where nothing is given, in a parameter's default."""

from mutants.edit import text
from mutants.mutant import DATA, MODEL, ROLLOUT, TRAINING, mutant

_LOAD = (
    "        check_state(model.state_dict(), state, model_path)\n"
    "        model.load_state_dict(state, strict=True, assign=True)\n"
)
_SIGNATURE = "torch_dtype: torch.dtype = torch.bfloat16, **kwargs) -> BagelForTraining:"


def _lenient(how: str):
    return text(MODEL, _LOAD, f"        model.load_state_dict(state, strict={how}, assign=True)\n")


MUTANTS = [
    mutant("strict by a keyword that is popped", (3,), "109", _lenient('kwargs.pop("strict", False)')),
    mutant("strict by a keyword that is got", (3,), "109", _lenient('bool(kwargs.get("strict"))')),
    mutant(
        "strict by a parameter",
        (3,),
        "109",
        _lenient("strict"),
        text(MODEL, _SIGNATURE, _SIGNATURE.replace("**kwargs", "strict: bool = False, **kwargs")),
    ),
    mutant(
        "strict by a name for the keyword",
        (3,),
        "109",
        text(
            MODEL,
            _LOAD,
            '        strict = kwargs.get("strict", False)\n'
            "        model.load_state_dict(state, strict=strict, assign=True)\n",
        ),
    ),
    mutant("strict by the environment", (3,), "109", _lenient('os.environ.get("STRICT", "0") == "1"')),
    mutant(
        "strict by an attribute of the class",
        (3,),
        "109",
        _lenient("cls._strict"),
        text(
            MODEL,
            "    _supports_gradient_checkpointing = True\n",
            "    _supports_gradient_checkpointing = True\n    _strict = False\n",
        ),
    ),
    mutant(
        "strict in what partial adds",
        (3,),
        "109",
        text(
            MODEL,
            _LOAD,
            "        load = functools.partial(model.load_state_dict, strict=False)\n        load(state, assign=True)\n",
        ),
        text(MODEL, "import json\n", "import functools\nimport json\n"),
    ),
    mutant(
        "assigned by a keyword that nobody gives",
        ("M6", 4),
        "110",
        text(MODEL, "strict=True, assign=True)", 'strict=True, assign=kwargs.pop("assign", False))'),
    ),
    mutant(
        "type asked for only where a keyword says so",
        ("M6",),
        "130",
        text(MODEL, "return model.to(torch_dtype)", 'return model.to(kwargs.get("dtype", torch.float32))'),
    ),
    mutant(
        "prompt cut by a parameter's default",
        ("D2", 43),
        "602",
        text(
            DATA,
            "    ids = tokenizer.encode(text.strip(), add_special_tokens=False)\n    ids = [",
            "    ids = tokenizer.encode(text.strip(), add_special_tokens=False, truncation=truncate, max_length=max_length)\n"
            "    ids = [",
        ),
        text(
            DATA,
            "text: str, max_length: int = 256) -> list[int]:",
            "text: str, max_length: int = 256, truncate: bool = True) -> list[int]:",
        ),
    ),
    mutant(
        "normaliser by a keyword of the step",
        ("R6", 7),
        "210",
        text(
            ROLLOUT,
            "include_logprob_normalizer=INCLUDE_LOGPROB_NORMALIZER",
            'include_logprob_normalizer=kwargs.get("include_logprob_normalizer", True)',
        ),
    ),
    mutant(
        "normaliser by an attribute that is not there",
        ("T5", 7),
        "210",
        text(
            TRAINING,
            "include_logprob_normalizer=INCLUDE_LOGPROB_NORMALIZER",
            'include_logprob_normalizer=getattr(cls, "include_logprob_normalizer", True)',
        ),
    ),
    mutant(
        "checkpointing by a keyword of the class",
        ("M4",),
        "104 105",
        text(
            MODEL,
            "_supports_gradient_checkpointing = True",
            '_supports_gradient_checkpointing = os.environ.get("CHECKPOINTING") == "1"',
        ),
    ),
    mutant(
        "special tokens skipped by a parameter's default",
        ("R5", 31),
        "312 305",
        text(
            ROLLOUT,
            "def _decode_prompt(self, token_ids: Any) -> str:",
            "def _decode_prompt(self, token_ids: Any, skip: bool = True) -> str:",
        ),
        text(ROLLOUT, "skip_special_tokens=False", "skip_special_tokens=skip"),
    ),
    mutant(
        "special tokens left out of the text",
        ("R5", 31),
        "312 305",
        text(ROLLOUT, "skip_special_tokens=False", "skip_special_tokens=True"),
    ),
    mutant(
        "special tokens skipped by leaving the option out of a batch",
        ("R5", 31),
        "312 305",
        text(
            ROLLOUT,
            "self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)",
            "self.tokenizer.batch_decode([ids], skip_special_tokens=True)[0]",
        ),
    ),
]
