"""What a pipeline's own code does around loading that training goes without, and what wrappers would look into."""

from __future__ import annotations

import ast

import pytest

from scaffold.port.building_calls import without_file_checks
from scaffold.port.denoiser import holds_tensors

CHECKED = '''
def validate(paths):
    """Look for every component."""
    missing = [path for path in paths if not path.exists()]
    if missing:
        raise FileNotFoundError(f"missing: {missing}")


def resolve(model):
    paths = [model]
    validate(paths)
    return paths
'''


def test_a_check_that_files_are_there_is_left_out() -> None:
    found = without_file_checks(CHECKED)
    names: dict[str, object] = {}
    exec(found, names)
    assert "validate" not in found
    assert names["resolve"]("nowhere") == ["nowhere"]  # type: ignore[operator]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("    validate(paths)\n", "    paths = validate(paths)\n"),  # what it returns is used
        ("        raise FileNotFoundError", "        raise ValueError"),  # it refuses for another reason
        ("    missing = [", "    paths[0] = [1]\n    missing = ["),  # it changes what it is given
    ],
)
def test_what_does_more_than_that_stays(before: str, after: str) -> None:
    text = CHECKED.replace(before, after)
    assert text != CHECKED
    assert without_file_checks(text) == text


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("@dataclass(frozen=True)\nclass Geometry:\n    rays: torch.Tensor\n", True),
        ("@dataclass\nclass Sizes:\n    width: int\n", False),
        ("class Layer:\n    weight: torch.Tensor\n", False),
        ("@dataclass\nclass AttentionInputs:\n    attn_mask: torch.Tensor | None = None\n", False),
    ],
)
def test_objects_that_hold_tensors(text: str, holds: bool) -> None:
    assert holds_tensors(ast.parse(text), ["Geometry", "Sizes", "Layer"]) is holds
