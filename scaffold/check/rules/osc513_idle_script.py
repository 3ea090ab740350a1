r"""A script of the package does not start its training, or leaves overrides out of it.

Overrides that stand in an array and are not expanded in the command are not there: the run takes defaults, with another
model, no LoRA, no deploy configuration, and says nothing. So it is with a line that lost its ``\``, and an array that is
assigned once more where ``+=`` was meant. A command that prints the trainer's call, that calls the trainer of text models,
or that trains for no step, trains something else or nothing.

    model=(actor_rollout_ref.model.path=… )
    python3 -m verl_omni.trainer.main_diffusion "${data[@]}" "${rollout[@]}"      # "${model[@]}" is missing

Instead: expand every array in the command of the trainer.
"""

from __future__ import annotations

import re

from scaffold.check.example import Example
from scaffold.check.model.package import Package
from scaffold.check.model.shell import ShellScript
from scaffold.check.model.shell_words import Word
from scaffold.check.rule import Hit, Hits

ID = "OSC513"
NAME = "idle-script"
SEVERITY = "error"
CHECKLIST = ("W3", "S1")
HELP = "run python3 -m verl_omni.trainer.… and hand every group of overrides to it"


_ARRAY = r"^(\w+)=\("
_OPTIONS = ("-m", "-u", "-B", "-I", "-O")
_SCRIPT = re.compile(r"\.sh$")


def check(package: Package) -> Hits:
    """Look at the command that starts the trainer, and at the arrays of overrides."""
    for script in package.scripts:
        if not script.overrides:
            continue
        engine = script.override("actor_rollout_ref.rollout.name")
        if engine is not None and engine.value in ("vllm", "sglang", "hf") and package.is_non_diffusers:
            text = f"{engine.value} is an engine for text models; the package's rollout adapter is vllm-omni's"
            yield Hit(script, engine.value_span, text, "write actor_rollout_ref.rollout.name=vllm_omni")
        starts = [at for at, word in enumerate(script.words) if word.text.startswith("verl_omni.trainer")]
        others = [at for at, word in enumerate(script.words) if word.text.startswith("verl.trainer.main")]
        hands_on = any(_SCRIPT.search(word.text) for word in script.words)
        first = script.overrides[0]
        if not starts and others:
            word = script.words[others[0]]
            yield Hit(
                script, word.span, f"{word.text} is the trainer of text models", "run verl_omni.trainer.main_diffusion"
            )
        elif not starts and not hands_on and not _runs_something(script):
            yield Hit(script, first.span, "the overrides are handed to no trainer")
        for at in starts:
            line = script.words[at].span.line
            before = [word for word in script.words[:at] if word.span.line == line]
            if any(word.text in ("echo", "printf", ":", "true") for word in before):
                yield Hit(script, script.words[at].span, "the trainer's command is printed, not run")
        yield from _arrays(script)


def _runs_something(script: ShellScript) -> bool:
    """Whether a trainer may be started in a way that the text does not show: a module or program in a variable."""
    for at, word in enumerate(script.words):
        behind = script.words[at + 1 :]
        if word.text in ("torchrun", "exec") or "main_" in word.text:
            return True
        if word.text == "ray" and behind and behind[0].text == "job":
            return True
        if word.text in ("python", "python3"):
            program = next((other for other in behind if other.text not in _OPTIONS), None)
            if program is None or "$" in program.raw or "train" in program.text:
                return True
    return False


def _arrays(script: ShellScript) -> Hits:
    text = script.plain_text
    for word in script.words:
        found = re.match(_ARRAY, word.raw)
        if found is None or not _holds_overrides(script, word):
            continue
        if f"${{{found[1]}[@]}}" not in text and f"${{{found[1]}[*]}}" not in text:
            yield Hit(script, word.span, f"the overrides of {found[1]} are handed to no command")


def _holds_overrides(script: ShellScript, word: Word) -> bool:
    """Whether a line behind ``name=(`` and before its end is an override."""
    if ")" in script.lines[word.span.line - 1]:
        return False
    lines = script.lines[word.span.line : word.span.line + 60]
    for line in lines:
        if line.startswith(")"):
            return False
        if re.match(r"\s*\+{0,2}[a-z_]+(\.[a-z_]+)+=", line):
            return True
    return False


FAILING = (
    Example("another engine", launch=("=vllm_omni", "=«vllm»")),
    Example(
        "data are made, and nothing is trained",
        e2e=(
            'python3 -m verl_omni.trainer.main_diffusion \\\n    data.train_files="$DATA_DIR/train.parquet"',
            'echo \\\n    «data.train_files="$DATA_DIR/train.parquet"»',
        ),
    ),
)
PASSING = (Example("an array that grows", launch=("layers.\"]'\n", "layers.\"]'\n)\n# LoRA\nmodel+=(\n")),)
