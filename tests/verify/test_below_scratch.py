"""Whatever a name says, the tool writes below its own folder: a file of the user's is the same bytes afterwards."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scaffold.checkpoint import CheckpointHeaders
from scaffold.checkpoint.headers import CheckpointFile
from scaffold.files.reading import OutsideError, below, is_below
from scaffold.verify.loading.run import write_headers
from scaffold.verify.measured import NotDrivableError
from scaffold.verify.rollout.engine_side.sound import Separator
from scaffold.verify.rollout.engine_side.tiny.checkpoint import write_files
from scaffold.verify.rollout.engine_side.tiny.components import Components, NoTinyModelError, hold_places
from scaffold.verify.rollout.engine_side.tiny.denoiser import PortedModule
from scaffold.verify.subject.checkpoint import CheckpointWriter, checkpoint_writer

torch: Any = pytest.importorskip("torch")

FOLDER = Path(__file__).parent / "hand_written"
TEXT = b"weights of a user " * 50


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """A folder of the tool's, in which a link leads out."""
    folder = tmp_path / "scratch" / "checkpoint"
    folder.mkdir(parents=True)
    (folder / "linked").symlink_to(tmp_path / "user", target_is_directory=True)
    (folder / "one.safetensors").symlink_to(tmp_path / "user" / "mine.safetensors")
    return folder


@pytest.fixture
def mine(tmp_path: Path) -> Iterator[Path]:
    """Weights of the user, which are as they were when the test ends, with nothing beside them."""
    file = tmp_path / "user" / "mine.safetensors"
    file.parent.mkdir()
    file.write_bytes(TEXT)
    yield file
    assert file.read_bytes() == TEXT
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def ways_out(mine: Path, *, links: bool = True, suffix: str = ".safetensors") -> list[str]:
    """Names that lead to the user's weights, or beside them, from `scratch`."""
    names = [
        str(mine.with_suffix(suffix)),
        f"../../user/mine{suffix}",
        f"a/../../../user/mine{suffix}",
        f"../../user/new{suffix}",
        str(mine.with_name(f"new{suffix}")),
        f"{mine.parent}/deeper/new{suffix}",
    ]
    return names + ([f"linked/mine{suffix}", f"linked/new{suffix}"] if links else [])


def test_every_way_out_is_refused_and_every_way_in_is_taken(scratch: Path, mine: Path) -> None:
    outside = [
        *ways_out(mine),
        "one.safetensors",
        "",
        ".",
        "..",
        "/",
        "a\0b",
        "C:\\mine",
        str(scratch),
        f"{scratch}/../x",
    ]
    assert [name for name in outside if is_below(scratch, name)] == []
    with pytest.raises(OutsideError, match="leads out of the folder"):
        below(scratch, str(mine))
    (scratch / "deep").mkdir()
    (scratch / "alias").symlink_to(scratch / "deep", target_is_directory=True)
    for name in ("x.bin", "a/b.bin", "..a/b", "alias/x", str(scratch / "a" / "b")):
        assert below(scratch, name) == scratch / name
    assert below(Path("some"), "x") == Path("some/x")


def test_checkpoints_of_a_hand_written_package(scratch: Path, mine: Path) -> None:
    state = {"weight": torch.zeros(2)}
    for name in [*ways_out(mine), "one.safetensors"]:
        with pytest.raises(OutsideError):
            CheckpointWriter(name, {"weight": "weight"}, {}).write(scratch, state)
    for name in ways_out(mine, suffix=".json"):
        with pytest.raises(OutsideError):
            CheckpointWriter("x.safetensors", {"weight": "weight"}, {name: {}}).write(scratch, state)
    CheckpointWriter("a/x.safetensors", {"weight": "weight"}, {"b/c.json": {}}).write(scratch, state)
    assert (scratch / "a" / "x.safetensors").is_file()
    assert (scratch / "b" / "c.json").is_file()


def test_a_file_that_a_package_says_is_its_checkpoint(
    scratch: Path, mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = SimpleNamespace(to_checkpoint_key=str, CHECKPOINT_FILES=[str(mine)], __name__="told_package")
    monkeypatch.setattr("scaffold.verify.subject.checkpoint.modules_of", lambda name: [module])
    table = SimpleNamespace(files={"config.json": {}})
    subject = SimpleNamespace(
        name="told_package", table=table, new_module=lambda: SimpleNamespace(state_dict=lambda: {"weight": 0})
    )
    with pytest.raises(NotDrivableError, match="CHECKPOINT_FILES names .* leads out of the checkpoint"):
        checkpoint_writer(subject, scratch)


@pytest.mark.upstream
@pytest.mark.parametrize("declared", [True, False])
def test_a_constant_of_the_source_names_a_file_on_this_disk(
    declared: bool, warm: None, mine: Path, tmp_path: Path, results: Any, edit: Callable[..., None]
) -> None:
    """Words of a package's code are tried as names of the weight file, where nobody says it."""
    shutil.copytree(FOLDER / "embeddings", tmp_path / "tree", ignore=shutil.ignore_patterns("__pycache__"))
    package = next((tmp_path / "tree" / "verl_omni" / "pipelines").iterdir())
    edit(package / "verify.toml", '"quilt.safetensors"', '""')
    with (package / "quilt.py").open("a", encoding="utf-8") as file:
        file.write(f'\nRELEASED = "{mine}"\nOLDER = "../../user/{mine.name}"\n')
    if not declared:
        (package / "verify.toml").unlink()
    found = results(package, "forward", "loading")
    assert found.keys() >= {"forward", "loading"}


@pytest.mark.parametrize("key", ["weights", "files"])
def test_the_table_of_a_hand_written_package(
    key: str, mine: Path, tmp_path: Path, edit: Callable[..., None], scaffold_cli: Callable[..., Any]
) -> None:
    for number, name in enumerate(ways_out(mine, links=False, suffix=".json" if key == "files" else ".safetensors")):
        tree = tmp_path / f"tree{number}"
        shutil.copytree(FOLDER / "embeddings", tree, ignore=shutil.ignore_patterns("__pycache__"))
        package = next((tree / "verl_omni" / "pipelines").iterdir())
        old = "quilt.safetensors" if key == "weights" else '"config.json"'
        edit(package / "verify.toml", old, name if key == "weights" else f'"{name}"')
        refused = scaffold_cli("verify", package, "--select", "forward").refusal()
        assert f"verify.toml: [verify] {key} must be:" in refused
        assert "below a checkpoint's folder" in refused


def test_files_of_a_generated_package(scratch: Path, mine: Path) -> None:
    for name in [*ways_out(mine), "one.safetensors"]:
        with pytest.raises(ValueError, match=r"^\[verify.files\]: .* leads out of the folder"):
            write_files(scratch, {name: {"weight": [2]}}, torch.float32)
    for name in ways_out(mine, suffix=".json"):
        with pytest.raises(ValueError, match=r"^\[verify.files\]: "):
            write_files(scratch, {name: {}}, torch.float32)


DENOISER = """
import torch

FILE = {file!r}


class Toy(torch.nn.Module):
    def __init__(self, hidden_size: int = 64):
        super().__init__()
        self.body = torch.nn.Linear(hidden_size, 4)


def build_denoiser(od_config):
    return Toy(), od_config.load_file(FILE)
"""
MODEL = """
from flow_grpo_runtime.checkpoint import DenoiserSource

SOURCE = DenoiserSource(build=None, prefix="transformer.")
"""


@pytest.mark.parametrize("relative", [True, False])
def test_a_file_that_the_pipeline_reads_by_itself(
    relative: bool, scratch: Path, mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_files").mkdir()
    file = f"{scratch}/../../user/{mine.name}" if relative else str(mine)
    for name, text in (("__init__", ""), ("toy_denoiser", DENOISER.format(file=file)), ("toy_model", MODEL)):
        (tmp_path / "own_files" / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("own_files", "own_files.toy_denoiser", "own_files.toy_model"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    facts = {"model": "toy", "entry": "Toy", "renames": [], "pipeline": "ToyPipeline", "reads": True}
    with pytest.raises(NoTinyModelError, match="reads a file of its own: .* leads out of the folder"):
        PortedModule("own_files", facts).write(scratch, {}, torch.float32)


def test_weights_go_back_into_the_checkpoint_that_they_are_written_to(scratch: Path, mine: Path) -> None:
    """Of a checkpoint whose pipeline read a file elsewhere, the runtime has its place as it lies from the folder."""
    from flow_grpo_runtime.checkpoint import Checkpoint, write_weights  # imports peft, so not in every worker

    for name in [*ways_out(mine), "one.safetensors"]:
        read = Checkpoint()
        read.keys["weight"] = (name, "weight")
        with pytest.raises(ValueError, match="leads out of the checkpoint"):
            write_weights(str(scratch), [("weight", torch.zeros(2))], read)
    read.keys["weight"] = ("a/x.safetensors", "weight")
    write_weights(str(scratch), [("weight", torch.zeros(2))], read)
    assert (scratch / "a" / "x.safetensors").is_file()


def test_components_and_places_of_files(scratch: Path, mine: Path) -> None:
    components = Components(scratch, [], {}, torch.float32)
    assert components._place(mine.parent, None) is None, "one of the machine's own is read where it lies"
    assert components._place(f"{scratch}/../../user", None) is None
    for path, subfolder in ((scratch, "../../user"), (scratch, str(mine.parent)), ("../../../user/none", None)):
        with pytest.raises(NoTinyModelError, match="leads out of the folder"):
            components._place(path, subfolder)
    for name in (str(mine.parent), "../../../user"):
        with pytest.raises(NoTinyModelError):
            components._fetched(repo_id=name)
    assert components._place(scratch, "vae") == scratch / "vae"
    error = FileNotFoundError(
        f"no file {scratch}/../../user/config.json, {scratch}/linked/config.json, {scratch}/a/b.json"
    )
    assert hold_places(scratch, error) == {scratch / "a" / "b.json"}


def test_headers_of_a_repository(scratch: Path, mine: Path) -> None:
    for name in [*ways_out(mine), "one.safetensors"]:
        with pytest.raises(OutsideError):
            write_headers(CheckpointHeaders("x", (CheckpointFile(name, 0, 0),), ()), scratch)
    for name in ways_out(mine, suffix=".json"):
        with pytest.raises(OutsideError):
            write_headers(CheckpointHeaders("x", (), (), {name: {}}), scratch)


def test_a_sound_that_is_there_already(mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.chdir(tmp_path / "temporary")
    (tmp_path / "mine.wav").write_bytes(b"sound")
    kept = tmp_path / "mine_(vocals).wav"
    kept.write_bytes(TEXT)
    with pytest.raises(FileExistsError, match="is there already"):
        Separator(tmp_path).separate(tmp_path / "mine.wav")
    assert kept.read_bytes() == TEXT
    assert Separator(tmp_path / "temporary").separate(tmp_path / "mine.wav") == ["mine_(vocals).wav"]
