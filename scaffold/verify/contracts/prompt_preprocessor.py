"""The data preprocessor makes upstream's ids and never cuts them."""

from __future__ import annotations

import inspect
import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from scaffold.files.reading import read_text
from scaffold.verify.measured import Measured, NotDrivableError
from scaffold.verify.subject.character_tokenizer import tokenizer_of

ID = "prompt-preprocessor"
TITLE = "the data preprocessor makes the ids that upstream makes, and refuses a prompt that is too long"
NOT_RECORDED = "the data set keeps prompts as messages, which the pipeline encodes itself"
RECORDED = False  # it reads the script only
PITFALLS = (31, 43)
TEXT = 'a sign that says "OPEN"'
# Reading files and writing tables; the function that makes ids needs none of them.
_UNUSED = ("datasets", "pandas", "transformers", "pyarrow")


def run(subject: Any) -> Measured:
    """Call the ``tokenize_<model>_prompt`` of every data script that has one."""
    tokenizer, begin, end, _ = tokenizer_of(subject)
    scripts = {
        script: name
        for name in (f"tokenize_{model}_prompt" for model in subject.job["models"])
        for place in ("examples/*/data_process/*.py", "scripts/*.py")
        for script in sorted(Path(subject.job["root"]).glob(place))
        if f"def {name}(" in read_text(script, errors="replace")
    }
    if not scripts:
        wanted = f"tokenize_{subject.job['models'][-1]}_prompt(tokenizer, text, max_length)"
        raise NotDrivableError(
            f"no data script in examples/*/data_process/ or scripts/ has a function {wanted}, which is called"
        )
    expected = [*begin, *tokenizer.encode(TEXT), *end]
    problems = []
    for script, name in scripts.items():
        function = _load(script)[name]
        try:
            inspect.signature(function).bind(tokenizer, TEXT, len(expected))
        except TypeError as error:
            raise NotDrivableError(
                f"{name} of {script.name} cannot be given (tokenizer, text, max_length): {error}"
            ) from None
        found = list(function(tokenizer, TEXT, len(expected)))
        if found != expected:
            problems.append(f"{script.name}: {TEXT!r} becomes other ids than upstream's")
        try:
            cut = list(function(tokenizer, TEXT, len(expected) - 1))
        except Exception:
            continue
        if cut != expected:
            problems.append(f"{script.name}: a prompt one token too long is cut, and loses its end token")
    return Measured(f"{', '.join(script.name for script in scripts)} keep both ends", problems)


class _Anything(ModuleType):
    """A module with every name in it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return object


def _load(script: Path) -> dict[str, Any]:
    for name in _UNUSED:
        sys.modules[name] = _Anything(name)
    return runpy.run_path(str(script), run_name="data_script")
