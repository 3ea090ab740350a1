"""A template of the tool is compiled once an installation; a text, a tool or a file that is another one is no match."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import jinja2
import pytest

from scaffold.files.reading import read_bytes
from scaffold.render import compiled
from scaffold.render.compiled import Compiled

TEXT = "{{ 1 + 1 }} {{ name }}\n"


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of templates of the tool, with one."""
    templates = tmp_path / "templates"
    templates.mkdir()
    (templates / "a.jinja").write_text(TEXT)
    monkeypatch.setattr(compiled, "_own", lambda: templates)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    return templates


def render(templates: Path, kept: Path, *, compiles: bool) -> str:
    """Render the template in a new environment; fail where it is compiled and should not be, or the reverse."""
    compiled_texts = []

    class Environment(jinja2.Environment):
        def compile(self, source: str, *arguments: object, **options: object) -> object:  # type: ignore[override]
            compiled_texts.append(source)
            return super().compile(source, *arguments, **options)  # type: ignore[call-overload]

    env = Environment(loader=jinja2.FileSystemLoader(templates), bytecode_cache=Compiled(kept))
    text = env.get_template("a.jinja").render(name="bagel")
    assert bool(compiled_texts) == compiles
    return text


def test_it_is_compiled_once(own: Path, tmp_path: Path) -> None:
    first = render(own, tmp_path / "kept", compiles=True)
    assert render(own, tmp_path / "kept", compiles=False) == first == "2 bagel"
    assert [path.suffix for path in (tmp_path / "kept").iterdir()] == [".template"]


def test_another_text_is_compiled(own: Path, tmp_path: Path) -> None:
    render(own, tmp_path / "kept", compiles=True)
    (own / "a.jinja").write_text("{{ name }}!\n")
    assert render(own, tmp_path / "kept", compiles=True) == "bagel!"
    assert render(own, tmp_path / "kept", compiles=False) == "bagel!"


def test_another_tool_compiles_anew(own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    render(own, tmp_path / "kept", compiles=True)
    monkeypatch.setattr(compiled, "_tool", lambda: b"edited")
    render(own, tmp_path / "kept", compiles=True)


def test_each_module_that_compiles_has_a_part_in_the_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []

    def noted(path: Path) -> bytes:
        read.append(path)
        return read_bytes(path)

    monkeypatch.setattr(compiled, "read_bytes", noted)
    compiled._tool.__wrapped__()
    names = {path.name for path in read}
    assert {"environment.py", "inert.py", "filters.py", "code.py", "printable.py"} <= names


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda data: data[:-5],
    "a bit": lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    "empty": lambda data: b"",
    "something else": lambda data: b"x" * len(data),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_written_anew(own: Path, tmp_path: Path, damage: str) -> None:
    render(own, tmp_path / "kept", compiles=True)
    file = next((tmp_path / "kept").iterdir())
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    assert render(own, tmp_path / "kept", compiles=True) == "2 bagel"
    assert render(own, tmp_path / "kept", compiles=False) == "2 bagel"


def test_nothing_is_written_where_python_writes_no_bytecode(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    render(own, tmp_path / "kept", compiles=True)
    assert not (tmp_path / "kept").exists()


def test_a_folder_that_cannot_be_written_is_no_error(own: Path, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("in the way")
    assert render(own, tmp_path / "kept", compiles=True) == "2 bagel"


def test_a_template_of_others_is_not_kept(own: Path, tmp_path: Path) -> None:
    (tmp_path / "team").mkdir()
    (tmp_path / "team" / "a.jinja").write_text(TEXT)
    assert render(tmp_path / "team", tmp_path / "kept", compiles=True) == "2 bagel"
    assert not (tmp_path / "kept").exists()
