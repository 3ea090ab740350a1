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
from scaffold.check.model.shell_commands import commands_of, expanded, is_override, straight
from scaffold.check.model.shell_words import Word
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC513"
NAME = "idle-script"
SEVERITY = "error"
CHECKLIST = ("W3", "S1")
APPLIES = Applies()
HELP = "run python3 -m verl_omni.trainer.… and hand every group of overrides to it"


_ARRAY = re.compile(r"^(\w+)=\(")
_SCRIPT = re.compile(r"\.sh$")


def check(package: Package) -> Hits:
    """Look at the command that starts the trainer, and at the arrays of overrides."""
    for script in (*package.launch_scripts, *package.e2e_scripts):
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
        yield from _loose(script)
        yield from _replaced(script)
        yield from _no_step(package, script)


def _loose(script: ShellScript) -> Hits:
    """Look for overrides at the beginning of a command: they are no program."""
    commands, arrays = commands_of(script)
    options = {array.name for array in arrays if array.words and is_override(array.words[0])}
    options -= {array.name for array in arrays if array.words and not is_override(array.words[0])}
    for at, command in enumerate(commands):
        word = command.words[0]
        # `a | b)` is one pattern of `case`, whatever it is made of.
        last = next((later for later in commands[at:] if later.ended_by != "|"), command)
        if last.ended_by in (")", ";;") or word.text.endswith("*"):
            continue  # a pattern of `case`
        if is_override(word) or expanded(word) in options:
            text = "these overrides are run as a command of their own, the trainer does not get them"
            yield Hit(script, word.span, text, "end the line before with \\")


def _replaced(script: ShellScript) -> Hits:
    """Look for arrays of overrides that are assigned a second time before anything has read them."""
    commands, arrays = commands_of(script)
    for at, array in enumerate(arrays):
        lost = any(is_override(word) for word in array.words)
        later = next((item for item in arrays[at + 1 :] if item.name == array.name), None)
        if later is None or later.appends or not lost or not array.plain or not later.plain:
            continue
        between = commands[array.before : later.before]
        words = [word for command in between for word in command.words]
        words += [word for item in arrays[at + 1 :] if item.head.span <= later.head.span for word in item.words]
        read = re.compile(rf"\$\{{?#?{array.name}\b")
        if straight(between) and not any(read.search(word.raw) or word.text in ("source", ".") for word in words):
            text = f"{array.name} is assigned anew, and its overrides of line {array.head.span.line} are lost"
            yield Hit(script, later.head.span, text, f"write {array.name}+=(")


def _no_step(package: Package, script: ShellScript) -> Hits:
    """Look for a training of no step, unless the runner that calls the script says otherwise."""
    before = script.override("trainer.val_before_train")
    if any("val_only" in item.key for item in script.overrides) or (before is not None and before.value != "False"):
        return  # to validate may be all that it is for
    for key in ("trainer.total_training_steps", "trainer.total_epochs"):
        override = script.override(key)
        if override is None or override.usual != "0":
            continue
        runners = [*package.project.runners, *package.project.e2e_scripts]
        named = {name for name in script.variables if f"${name}" in override.raw or f"${{{name}" in override.raw}
        if override.value == "0" or not any(n.encode() in r.data for r in runners if r is not script for n in named):
            yield Hit(script, override.value_span, f"{key} is 0: nothing is trained", "train for a step or more")


def _runs_something(script: ShellScript) -> bool:
    """Whether a trainer may be started in a way that is not plain: a module or program in a variable."""
    return any(
        word.text in ("python", "python3", "torchrun", "ray", "exec") or "main_" in word.text for word in script.words
    )


def _arrays(script: ShellScript) -> Hits:
    text = script.plain_text
    for word in script.words:
        found = _ARRAY.match(word.raw)
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
    Example("a comment between the lines of a command", launch=('"${model[@]}"', '# the model\n    «"${model[@]}"»')),
)
PASSING = (
    Example(
        "two options in one pattern of a case",
        launch=(
            "\n# Data: python3",
            '\ncase "$1" in\n    trainer.a=1 | trainer.b=2 | trainer.c=3) NODES=1 ;;\nesac\n# Data: python3',
        ),
    ),
    Example("an array that grows", launch=("layers.\"]'\n", "layers.\"]'\n)\n# LoRA\nmodel+=(\n")),
)
