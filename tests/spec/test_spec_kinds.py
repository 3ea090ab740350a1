"""A value of the wrong kind is named, wherever it stands; nothing that a person may type into a spec is a traceback."""

from __future__ import annotations

import copy
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from scaffold.errors import ScaffoldError
from scaffold.spec import IntegrationSpec
from scaffold.spec.validate import validate

NAN, INFINITY = float("nan"), float("inf")
WRONG = [
    *("", " ", "x", "-rf", "../../x", "/x", "a\nb", "\x1b[31m", "\0", 'a"""b\\', "{{ 7 * 7 }}", "é\u202e", "x" * 999),
    *(0, -1, 2**63 - 1, 1.5, -0.5, NAN, INFINITY, 1e308, True, False),
    *([], [[]], [{}], ["x"], ["x", "x"], [1], [0.5, 0.1], {}, {"a": 1}),
]
# What the file tells about itself; it is checked elsewhere.
BOOKKEEPING = {"schema", "digest", "not_established", "provenance", "derived", "files"}
SEED, CASES = 6, 250
SAID = {
    "upstream.step_arguments": ([["model_output"]], "a list of text"),
    "architecture.sequence": (["text", ["latents"]], "a list of text"),
    "checkpoint.text_config": (["hidden_size"], "a list of tables"),
    "tokens.bos_token_id": ("<s>", "a table"),
    "target.docs_index": (1, "text"),
    "target.lora_hook": ("yes", "true or false"),
    "names.display": (5, "text"),
    "recipe.learning_rate": ("1e-4", "a number"),
    "recipe.noise_level": (NAN, "a number"),
    "recipe.gpus": (4.5, "a whole number"),
    "recipe.sde_window_range": ([0, "end"], "a list of whole numbers"),
    "schedule.shift": (INFINITY, "a positive number"),
}


@pytest.fixture(scope="module")
def document(reference_spec: IntegrationSpec) -> dict[str, Any]:
    """Return the sections of the golden output, long lists cut short."""
    sections: dict[str, Any] = json.loads(json.dumps(reference_spec.sections))
    sections["checkpoint"]["table"] = sections["checkpoint"]["table"][:2]
    return {"schema": 1, **without_none(sections)}


def without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_none(entry) for key, entry in value.items() if entry is not None}
    return [without_none(entry) for entry in value] if isinstance(value, list) else value


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key, entry in value.items() if isinstance(value, dict) else enumerate(value):
        if above or key not in BOOKKEEPING:
            yield (*above, key)
            if isinstance(entry, dict | list):
                yield from places(entry, (*above, key))


def altered(document: dict[str, Any], place: tuple[Any, ...], value: Any) -> str:
    changed = copy.deepcopy(document)
    holder: Any = changed
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = value
    return tomli_w.dumps(changed)


def use(text: str) -> None:
    """What happens to a spec before its templates, which turn every error into one that names their line."""
    spec = IntegrationSpec.from_toml(text)
    validate(spec)
    spec.context()


def test_the_document_itself_is_fine(document: dict[str, Any]) -> None:
    use(tomli_w.dumps(document))


def test_no_wrong_value_is_a_traceback(document: dict[str, Any]) -> None:
    cases = [(place, value) for place in places(document) for value in WRONG]
    said = []
    for place, value in random.Random(SEED).sample(cases, CASES):
        try:
            use(altered(document, place, value))
        except ScaffoldError as error:
            said.append(error.line)
        except Exception as error:
            pytest.fail(f"{place} = {value!r}: {error!r}")
    assert len(said) > CASES // 5
    assert [line for line in said if "\n" in line] == []


@pytest.mark.parametrize("key", SAID)
def test_another_kind_is_said(document: dict[str, Any], key: str) -> None:
    value, wanted = SAID[key]
    with pytest.raises(ScaffoldError) as caught:
        use(altered(document, tuple(key.split(".")), value))
    assert key in caught.value.line
    assert wanted in caught.value.line


@pytest.mark.parametrize("key", ["tokens.bos_token_id", "target.docs_index", "architecture.sequence"])
def test_commands_refuse_it_in_one_line(
    scaffold_cli: Callable[..., Any], reference: Path, tmp_path: Path, document: dict[str, Any], key: str
) -> None:
    text = altered(document, tuple(key.split(".")), SAID[key][0])
    tree = Path(shutil.copytree(reference, tmp_path / "tree", symlinks=True))
    spec = next(tree.glob("verl_omni/pipelines/*/scaffold.toml"))
    spec.write_text(text, encoding="utf-8")
    assert key in scaffold_cli("new", "bagel", "--spec", spec, "--patch", "--out", tmp_path / "out").refusal()
    assert key in scaffold_cli("update", spec.parent, "--spec").refusal()
    assert not (tmp_path / "out").exists()
    assert spec.read_text(encoding="utf-8") == text
