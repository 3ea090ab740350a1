"""Prompts on their way into the rollout: their ids, what prepares them, what they come in."""

from __future__ import annotations

import inspect
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from scaffold.files.reading import read_text
from scaffold.verify.formulas import relative
from scaffold.verify.measured import Measured, NotDrivableError
from scaffold.verify.subject.character_tokenizer import tokenizer_of
from scaffold.verify.subject.columns import IDS, encoded_columns
from scaffold.verify.subject.rollout import drive, require_inherited_loop
from scaffold.verify.subject.subject import PROMPTS as SUBJECT_PROMPTS

TEXTS = ("a red sign", 'a "sign" that says: OPEN', "Straße, café, 紅", "one\nline and another")
TEXT = 'a sign that says "OPEN"'
# Reading files and writing tables; the function that makes ids needs none of them.
_UNUSED = ("datasets", "pandas", "transformers", "pyarrow")
PROMPTS = ((5, 6, 7, 8), (20, 19, 18, 17))
RAGGED = ((5, 6, 7), (20, 19, 18, 17))


class Ids:
    """The rollout sees the prompt that training sees."""

    ID = "prompt-ids"
    TITLE = "the text that the rollout makes of prompt ids is encoded to the same ids again"
    NOT_RECORDED = "training takes recorded calls and no token ids; level rollout sends ids to the pipeline"
    PITFALLS = (31,)
    LIMIT = 0.0  # another prompt is another distribution

    @staticmethod
    def run(subject: Any) -> Measured:
        """Send ids only, as the agent loop does; encode what upstream gets as upstream does."""
        require_inherited_loop(subject)
        tokenizer, begin, end, key = tokenizer_of(subject)
        around = subject.job["upstream"]["prompt"].get("around_request")
        before, behind = (begin, end) if around is None else map(tokenizer.encode, around)
        driver = drive(subject)
        driver.pipeline.tokenizer = tokenizer
        problems, changed = [], 0
        for text in TEXTS:
            ids = [*begin, *tokenizer.encode(text), *end]
            for form in (ids, torch.tensor(ids)):
                prompt = driver.roll_out(prompt={"prompt_token_ids": form}).prompt
                found = prompt.get(key) if isinstance(prompt, dict) else prompt
                if not isinstance(found, str):
                    return Measured("", [f"upstream gets no text under {key!r} for a prompt of ids"])
                if [*before, *tokenizer.encode(found), *behind] != ids:
                    changed += 1
                    problems.append(f"{text!r} reaches upstream as {found!r}")
        return Measured(f"{len(TEXTS)} prompts come back to their ids", problems, float(changed), Ids.LIMIT, "prompts")


class Preprocessor:
    """The data preprocessor makes upstream's ids and never cuts them."""

    ID = "prompt-preprocessor"
    TITLE = "the data preprocessor makes the ids that upstream makes, and refuses a prompt that is too long"
    NOT_RECORDED = "the data set keeps prompts as messages, which the pipeline encodes itself"
    RECORDED = False  # it reads the script only
    PITFALLS = (31, 43)

    @staticmethod
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


class Containers:
    """Prompt ids are read from every container that the engine uses, or from the rollout's columns at any width."""

    ID = "prompt-containers"
    TITLE = "prompt ids give one velocity whatever container they come in"
    PITFALLS = (28,)
    LIMIT = 0.0  # the same ids give the same operations

    @staticmethod
    def run(subject: Any) -> Measured:
        """Compare each container with the stack of lists that every other contract uses."""
        if subject.needs_embeddings:
            raise NotDrivableError("training takes the embeddings of the rollout and reads no ids")
        module = subject.new_module()
        column = subject.spec.get("prompt", {}).get("column") or "prompt_token_ids"
        worst, problems, tried = 0.0, [], []
        for name, prompts, make in _widths() if _reads_columns(subject, module) else _containers(column):
            settings = subject.settings()
            trajectory = subject.trajectory(len(prompts), settings)
            batch = subject.micro_batch(prompts)
            reference = subject.prepared(module, settings, trajectory, batch)[0]
            content = {key: batch[key] for key in ("prompts", "attention_mask")} | make(prompts)
            try:
                inputs = subject.prepared(module, settings, trajectory, content)[0]
                with torch.no_grad():
                    worst = max(worst, relative(subject.velocity(module, inputs), subject.velocity(module, reference)))
            except Exception as error:
                problems.append(f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:150]}")
                continue
            tried.append(name)
        return Measured(f"{', '.join(tried)}: {worst:g} apart", problems, worst, Containers.LIMIT, "relative")

    @staticmethod
    def run_recorded(subject: Any) -> Measured:
        """Compare each container with the stack that every other contract uses."""
        module, settings = subject.new_module(), subject.settings()
        trajectory = subject.trajectory(len(SUBJECT_PROMPTS), settings)
        batch = subject.micro_batch(SUBJECT_PROMPTS)
        samples = [subject.sample_of(prompt)["extra"] for prompt in SUBJECT_PROMPTS]
        columns = {name: [sample[name] for sample in samples] for name in batch.keys()}  # noqa: SIM118

        def velocity(content: Any) -> torch.Tensor:
            made = subject.prepared(module, settings, trajectory, content)
            with torch.no_grad():
                found: torch.Tensor = subject.velocity(module, made[0])
                return found

        reference = velocity(batch)
        worst, problems, tried = 0.0, [], []
        for kind in ("a list", "an array of objects"):
            content = {name: values if kind == "a list" else _array(values) for name, values in columns.items()}
            try:
                worst = max(worst, relative(velocity(content), reference))
            except Exception as error:
                problems.append(f"{kind}: {type(error).__name__}: {' '.join(str(error).split())[:150]}")
                continue
            tried.append(kind)
        return Measured(f"{', '.join(tried)}: {worst:g} apart", problems, worst, Containers.LIMIT, "relative")


def _reads_columns(subject: Any, module: Any) -> bool:
    """Whether training reads the rollout's ids, and fails without them."""
    settings = subject.settings()
    batch = subject.micro_batch(RAGGED)
    del batch[IDS]
    try:
        subject.prepared(module, settings, subject.trajectory(len(RAGGED), settings), batch)
    except KeyError as error:
        return IDS in str(error)
    except Exception:
        return False
    return False


def _widths() -> list[tuple[str, Any, Callable[[Any], Any]]]:
    """The columns as wide as the longest prompt, wider, and with a mask of numbers, which some queues make of it."""

    def numbers(prompts: Any) -> dict[str, torch.Tensor]:
        return {name: column.long() for name, column in encoded_columns(prompts, 9).items()}

    return [
        ("columns without padding", PROMPTS, lambda prompts: encoded_columns(prompts, len(prompts[0]))),
        ("ragged columns", RAGGED, lambda prompts: encoded_columns(prompts, 4)),
        ("wide columns", RAGGED, lambda prompts: encoded_columns(prompts, 50)),
        ("a mask of numbers", RAGGED, numbers),
    ]


def _containers(column: str) -> list[tuple[str, Any, Callable[[Any], Any]]]:
    def named(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda prompts: {column: make(prompts)}

    def arrays(prompts: Any) -> Any:
        column = np.empty(len(prompts), dtype=object)
        column[:] = [np.array(ids) for ids in prompts]
        return column

    return [
        ("a list of lists", RAGGED, named(lambda prompts: [list(ids) for ids in prompts])),
        ("an array of arrays", RAGGED, named(arrays)),
        ("a list of tensors", RAGGED, named(lambda prompts: [torch.tensor(ids) for ids in prompts])),
        ("a 2-D tensor", PROMPTS, named(torch.tensor)),
        ("a 1-D tensor", PROMPTS[:1], named(lambda prompts: torch.tensor(prompts[0]))),
    ]


def _array(values: list[Any]) -> Any:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column
