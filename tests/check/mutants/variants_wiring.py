"""Other ways to make the same mistakes around the package."""

from mutants.edit import (
    delete,
    line,
    swap,
    text,
)
from mutants.mutant import (
    DATA,
    DUMMY,
    E2E,
    INIT,
    LAUNCH,
    PATCH,
    mutant,
)

PLUS = "    +actor_rollout_ref.model.architecture=OmniBagelForConditionalGeneration\n"

MUTANTS = [
    # Around it
    mutant(
        "package imports from a module that is not there",
        ("W1",),
        "503",
        line(
            INIT,
            "",
            "from .vllm_omni_rollout_adapter import BagelPipelineWithLogProb",
            "from .rollout import BagelPipelineWithLogProb",
        ),
    ),
    mutant(
        "registry imports another name",
        ("W2", 25),
        "502",
        text(PATCH, "+from .bagel_flow_grpo import *", "+from .bagel_flowgrpo import *"),
    ),
    mutant(
        "deploy config as an empty variable",
        ("W4",),
        "505 510",
        text(
            LAUNCH,
            'DEPLOY_CONFIG=${DEPLOY_CONFIG:-"$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/bagel_deploy_config.yaml"}',
            "DEPLOY_CONFIG=",
        ),
    ),
    mutant(
        "architecture of the config file",
        ("W5",),
        "506",
        text(LAUNCH, PLUS, PLUS.replace("OmniBagelForConditionalGeneration", "BagelForConditionalGeneration")),
    ),
    mutant("override commented out", ("W5",), "506", text(E2E, PLUS, "    #" + PLUS.lstrip())),
    mutant(
        "prompt under content",
        ("D1",),
        "601",
        swap(
            DATA, "build_row", '[{"role": "user", "content": text.strip()}]', '[{"role": "user", "text": text.strip()}]'
        ),
    ),
    mutant(
        "messages as tuples",
        ("D1",),
        "601",
        swap(DATA, "build_row", '[{"role": "user", "content": text.strip()}]', '[("user", text.strip())]'),
    ),
    mutant(
        "special tokens added by the tokenizer",
        ("D2",),
        "603",
        swap(
            DATA,
            "tokenize_bagel_prompt",
            "tokenizer.encode(text.strip(), add_special_tokens=False)",
            "tokenizer.encode(text.strip())",
        ),
    ),
    mutant(
        "ids cut while joined",
        (43,),
        "602",
        line(
            DATA,
            "tokenize_bagel_prompt",
            "ids = [_token_id(tokenizer, BEGIN_TOKEN), *ids, _token_id(tokenizer, END_TOKEN)]",
            "ids = [_token_id(tokenizer, BEGIN_TOKEN), *ids[: max_length - 2], _token_id(tokenizer, END_TOKEN)]",
        ),
    ),
    mutant("dummy script gone, rows made inline", ("S1",), "510 702", delete(DUMMY)),
    mutant(
        "smoke test trains another package", ("S1",), "506 702", text(E2E, PLUS, PLUS.replace("OmniBagel", "OmniFlux"))
    ),
    mutant(
        "runner names the script with another folder",
        ("S2", 37),
        "701",
        text(PATCH, "bash tests/special_e2e/run_flowgrpo_bagel.sh", "bash tests/e2e/run_bagel_flowgrpo.sh"),
    ),
]
