import pytest

from scaffold.errors import ScaffoldError
from scaffold.plan.edits import DocsIndexEdit, add_page, remove_page

PAGE = "examples/toy/flowgrpo_trainer_toy.md"

INDEX = """\
# Title

```{toctree}
:maxdepth: 2
:caption: Examples

examples/one.md
examples/two.md
```

```{toctree}
:maxdepth: 1
:caption: Examples

settings.md
```

```{toctree}
:caption: Other

examples/three.md
```
"""


@pytest.mark.parametrize(
    "source",
    [
        INDEX,
        INDEX.replace("\n", "\r\n"),
        INDEX.replace("examples/two.md\n", "examples/two.md\n\n"),
        "```{toctree}\n:caption: Examples\n```\n",
        "```{toctree}\n:caption: Examples\n\na.md\n```",
    ],
)
def test_add_twice_is_add_once_and_remove_is_the_inverse(source: str) -> None:
    edit = DocsIndexEdit("docs/index.md", PAGE)
    added = edit.apply(source)
    assert len(added.splitlines()) == len(source.splitlines()) + 1
    assert edit.apply(added) == added
    assert edit.revert(added) == source


def test_page_goes_behind_the_last_example() -> None:
    assert add_page(INDEX, PAGE, path="x") == INDEX.replace("two.md\n", f"two.md\n{PAGE}\n")


def test_missing_toctree_is_said() -> None:
    for source in ("", "# x\n", "```{toctree}\n:caption: Other\n\na.md\n```\n", "```{toctree}\n:caption: Examples\n"):
        with pytest.raises(ScaffoldError, match=r"docs/index\.md: expected a toctree"):
            add_page(source, PAGE, path="docs/index.md")


def test_hostile_page_is_refused() -> None:
    with pytest.raises(ScaffoldError, match="cannot be written"):
        add_page(INDEX, "a.md\n```", path="x")


def test_index_without_a_toctree_and_without_the_page_has_nothing_to_undo() -> None:
    assert remove_page("# Home\n", "examples/toy/toy.md", path="docs/index.md") == "# Home\n"
    with pytest.raises(ScaffoldError, match="expected a toctree"):
        remove_page("# Home\nexamples/toy/toy.md\n", "examples/toy/toy.md", path="docs/index.md")
