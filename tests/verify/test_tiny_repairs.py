"""What a failing request says about a tiny checkpoint, and what is changed for it."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from scaffold.verify.rollout.engine_side.tiny.asked import seen_by
from scaffold.verify.rollout.engine_side.tiny.components import Components, hold_places
from scaffold.verify.rollout.engine_side.tiny.denoiser import NoTinyModelError, PortedModule, other_branch
from scaffold.verify.rollout.engine_side.tiny.loaded import add_up_in_float32, note_states
from scaffold.verify.rollout.engine_side.tiny.text import image_text

FACTS = {"model": "toy", "entry": "Toy", "renames": [], "pipeline": "ToyPipeline", "attribute": "transformer"}
DENOISER = """
import torch


class Toy(torch.nn.Module):
    def __init__(self, hidden_size: int = 512, cond_dim: int = 0, pack: bool = False, prefix: str = "", quant=None):
        super().__init__()
        self.body = torch.nn.Linear(hidden_size, hidden_size)
        if cond_dim > 0:
            self.cond = torch.nn.Linear(cond_dim, hidden_size)
        if pack:
            self.packer = torch.nn.Linear(4, hidden_size)


def build_denoiser(od_config):
    return Toy(hidden_size=od_config.tf_model_config.get("hidden_size", 2048)), [("transformer", "transformer.", None)]
"""
MODEL = """
from flow_grpo_runtime.checkpoint import DenoiserSource

SOURCE = DenoiserSource(build=None, prefix="transformer.")
"""
# Asks two files and passes a dataclass on; one of the files has to be there before.
ASKING = """
import json
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass
class Sizes:
    num_blocks: int = 40
    packed: bool = True
    stamp: str | None = None


class Toy(torch.nn.Module):
    def __init__(self, od_config, sizes=None, *, width):
        super().__init__()
        self.body = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(sizes.num_blocks))


def build_denoiser(od_config):
    needed = Path(od_config.model, "vae", "config.json")
    if not needed.is_file():
        raise FileNotFoundError(f"files are missing: {needed}")
    with open(Path(od_config.model, "transformer", "config.json")) as file:
        extra = json.load(file)
    width = od_config.tf_model_config.get("hidden_size", 4096)
    return Toy(od_config, Sizes(num_blocks=extra.get("num_blocks", 40)), width=width), [("transformer", "", None)]
"""


def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, denoiser: str) -> PortedModule:
    """A package with such a denoiser."""
    folder = tmp_path / "toy_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "toy_denoiser.py").write_text(denoiser)
    (folder / "toy_model.py").write_text(MODEL)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("toy_package", "toy_package.toy_denoiser", "toy_package.toy_model"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return PortedModule("toy_package", FACTS)


@pytest.fixture
def ported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PortedModule:
    """A package with a denoiser that has optional parts."""
    return toy(tmp_path, monkeypatch, DENOISER)


def settings(ported: PortedModule, folder: Path, given: dict[str, Any]) -> dict[str, Any]:
    return ported.settings(folder, given, torch.float32)


def test_what_is_nothing_by_default_is_no_setting(ported: PortedModule, tmp_path: Path) -> None:
    assert settings(ported, tmp_path, {}) == {"hidden_size": 96, "cond_dim": 0, "pack": False}


def test_given_values_stand_as_they_are(ported: PortedModule, tmp_path: Path) -> None:
    assert settings(ported, tmp_path, {"hidden_size": 512, "more": [1]})["hidden_size"] == 512
    assert settings(ported, tmp_path, {"more": [1]})["more"] == [1]


def test_what_the_builder_asks_for_is_a_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No argument of the constructor names them: one is asked of the engine, one of a file, one is a dataclass's."""
    found = toy(tmp_path, monkeypatch, ASKING)
    checkpoint = tmp_path / "checkpoint"
    (checkpoint / "transformer").mkdir(parents=True)
    (checkpoint / "transformer" / "config.json").write_text("{}")
    assert settings(found, checkpoint, {}) == {"hidden_size": 96, "num_blocks": 2, "packed": True}
    assert (checkpoint / "vae" / "config.json").is_file()  # it holds a place


LIBRARY = """
import inspect

import torch


class Toy(torch.nn.Module):
    def __init__(self, hidden_size: int = 2048):
        super().__init__()
        self.body = torch.nn.Linear(hidden_size, 1)


def build_denoiser(od_config):
    known = inspect.signature(Toy.__init__).parameters
    settings = {name: value for name, value in od_config.tf_model_config.params.items() if name in known}
    return Toy(**settings), [("transformer", "transformer.", None)]
"""


def test_watching_the_constructor_leaves_its_signature(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = toy(tmp_path, monkeypatch, LIBRARY)
    with seen_by(found.entry) as seen:
        found.build(SimpleNamespace(tf_model_config=SimpleNamespace(params={"hidden_size": 8, "other": 1})))
    assert seen == {"hidden_size": 8}


def test_a_denoiser_that_cannot_be_built_says_what_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = toy(tmp_path, monkeypatch, DENOISER.replace("prefix: str", "*, depth: int, prefix: str"))
    with pytest.raises(NoTinyModelError, match=r"argument: 'depth'; set values in \[verify.denoiser\]"):
        found.write(tmp_path, {}, torch.float32)


TOWER = """
import torch


class Toy(torch.nn.Module):
    def __init__(self, hidden_size: int = 2048, tower: bool = True):
        super().__init__()
        self.body = torch.nn.Linear(hidden_size, 1)
        if tower:
            self.tower = torch.nn.Linear(500, 500)


def build_denoiser(od_config):
    import json
    from pathlib import Path

    settings = json.loads(Path(od_config.model, "transformer", "config.json").read_text())
    settings.pop("_class_name")
    return Toy(**settings), [("transformer", "transformer.", None)]
"""


@pytest.mark.parametrize(
    ("source", "reason", "fitted"),
    [
        (TOWER, None, {"tower": False}),
        (TOWER.replace("if tower:", "if hidden_size:"), "constants of its source", {}),
    ],
)
def test_a_part_of_fixed_size_is_switched_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, reason: str | None, fitted: dict[str, bool]
) -> None:
    monkeypatch.setattr("scaffold.verify.rollout.engine_side.tiny.denoiser.LARGEST", 10_000)
    found = toy(tmp_path, monkeypatch, source)
    with pytest.raises(NoTinyModelError, match=reason) if reason else nullcontext():
        found.write(tmp_path, {}, torch.float32)
    assert found.fitted == fitted


BRANCHES = """
def forward(model):
    if model.packs:
        return 1
    elif model.joins:
        if model.other is None:
            raise RuntimeError("too few frames")
    return 2
"""


@pytest.mark.parametrize(
    ("flags", "turned"),
    [
        ({"packs": False, "joins": True}, {"joins": False}),
        ({"packs": False}, {"packs": True}),
        ({"joins": 3}, {}),
        ({"other": False}, {}),
    ],
)
def test_the_flag_that_chose_the_branch_is_turned(
    tmp_path: Path, flags: dict[str, Any], turned: dict[str, bool]
) -> None:
    path = tmp_path / "branches.py"
    path.write_text(BRANCHES)
    names: dict[str, Any] = {}
    exec(compile(BRANCHES, str(path), "exec"), names)
    with pytest.raises(RuntimeError) as raised:
        names["forward"](SimpleNamespace(packs=False, joins=True, other=None))
    assert other_branch(raised.value, flags) == turned


def test_a_class_name_that_the_pipeline_wants_is_given(ported: PortedModule) -> None:
    wanted = ValueError("config.json must have _class_name='ToyOfTheVendor', got 'Toy'")
    assert ported.fit(wanted, None)
    assert ported.class_name == "ToyOfTheVendor"
    assert not ported.fit(wanted, None)


def test_only_files_below_the_checkpoint_get_a_place(tmp_path: Path) -> None:
    error = FileNotFoundError(f"missing: {tmp_path}/vae/config.json, {tmp_path}/a.safetensors, /elsewhere/b.json")
    assert hold_places(tmp_path, error) == {tmp_path / "vae/config.json", tmp_path / "a.safetensors"}
    assert (tmp_path / "vae/config.json").read_text() == "{}"
    assert (tmp_path / "a.safetensors").read_text() == ""
    assert not hold_places(tmp_path, error)
    assert not hold_places(tmp_path, ValueError(f"{tmp_path}/c.json is no good"))


@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("mat1 and mat2 shapes cannot be multiplied (40x32 and 2304x96)", 2304),
        ("The size of tensor a (64) must match the size of tensor b (32) at non-singleton dimension 2", 64),
        ("Given normalized_shape=[64], expected input with shape [*, 64], but got input of size[1, 40, 32]", 64),
        ("mat1 and mat2 shapes cannot be multiplied (32x40 and 2304x96)", None),
        ("the encoder's hidden size differs: expected 2304, got 32.", 2304),
        ("index 47 is out of bounds for dimension 2 with size 32", 48),
        ("index 47 is out of bounds for dimension 2 with size 40", None),
        ("a video of the wrong length: expected 9, but got 5", None),
    ],
)
def test_encoders_of_another_width_are_written_anew(tmp_path: Path, text: str, width: int | None) -> None:
    found = Components(tmp_path, [], {}, torch.float32)
    assert found.fit(RuntimeError(text)) is (width is not None)
    assert found.scale.hidden == (width or 32)


@pytest.mark.parametrize(("part", "fitted"), [("cond", {"cond_dim": 16}), ("packer", {"pack": True}), ("body", {})])
def test_a_part_that_is_missing_is_switched_on(ported: PortedModule, part: str, fitted: dict[str, Any]) -> None:
    error = AttributeError(f"'Toy' object has no attribute '{part}'")
    assert ported.fit(error, 16) is bool(fitted)
    assert ported.fitted == fitted
    assert not ported.fit(error, 16)  # once is enough; it fails for another reason then
    assert not ported.fit(AttributeError("'Other' object has no attribute 'cond'"), 16)


def test_encoders_of_more_layers_are_written_anew(tmp_path: Path) -> None:
    found = Components(tmp_path, [], {}, torch.float32)
    for name in ("encoder", "vae"):
        (tmp_path / name).mkdir()
    found.written = {tmp_path / "encoder": "encoder", tmp_path / "vae": "AutoencoderKL"}
    mismatch = "The size of tensor a ({}) must match the size of tensor b ({}) at non-singleton dimension 1"
    assert not found.fit(RuntimeError(mismatch.format(7, 25)))  # neither is the number of states
    assert not found.fit(RuntimeError("something else"))
    assert (tmp_path / "encoder").is_dir()
    assert found.fit(RuntimeError(mismatch.format(3, 25)))
    assert found.layers == {tmp_path / "encoder": 24}
    assert not (tmp_path / "encoder").exists()
    assert (tmp_path / "vae").is_dir()


def test_only_the_encoder_whose_states_were_asked_for_gets_more_layers(tmp_path: Path) -> None:
    class Encoder(torch.nn.Module):
        base_model_prefix = "model"
        config = SimpleNamespace()

        def forward(self, output_hidden_states: bool = False) -> None:
            pass

    found = Components(tmp_path, [], {}, torch.float32)
    models = {}
    for name in ("text_encoder", "audio_encoder"):
        folder = tmp_path / name
        folder.mkdir()
        found.written[folder] = "encoder"
        models[name] = Encoder()
        note_states(models[name], partial(found.asked.add, folder))
    models["text_encoder"]()
    models["audio_encoder"](output_hidden_states=True)
    assert found.fit(RuntimeError("The size of tensor a (3) must match the size of tensor b (25) at dimension 1"))
    assert found.layers == {tmp_path / "audio_encoder": 24}


def test_an_encoder_gets_as_many_layers_as_states_are_taken_of_it(tmp_path: Path) -> None:
    class Encoder(torch.nn.Module):
        base_model_prefix = "model"
        config = SimpleNamespace(output_hidden_states=True)

        def forward(self) -> Any:
            return SimpleNamespace(hidden_states=tuple(torch.zeros(1) for _ in range(3)))

    found = Components(tmp_path, [], {}, torch.float32)
    folder, model = tmp_path / "text_encoder", Encoder()
    folder.mkdir()
    found.written[folder] = "encoder"
    note_states(model, partial(found.asked.add, folder))
    states = model().hidden_states
    assert (len(states[1:]), len(states[-1])) == (2, 1)
    with pytest.raises(IndexError) as error:
        states[9]
    assert found.fit(error.value)
    assert found.layers == {folder: 9}
    assert not folder.exists()


def test_convolutions_in_half_precision_round_once() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv3d(8, 8, 3, padding=1), torch.nn.ReLU()).bfloat16()
    x = torch.randn(1, 8, 3, 6, 6).bfloat16()
    exact = torch.nn.functional.conv3d(x.double(), model[0].weight.double(), model[0].bias.double(), padding=1)
    add_up_in_float32(model)
    found = model(x)
    assert found.dtype == torch.bfloat16
    # The exact sum, rounded: half a unit in the last place, and what float32 adds to it.
    assert torch.all((found.double() - exact.relu()).abs() <= exact.abs() * (2**-8 + 1e-5) + 1e-6)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["<|im_start|>", "<|im_end|>", "<|picture_start|>", "<|picture_end|>", "<|image_pad|>"],
         "<|picture_start|><|image_pad|><|picture_end|>"),
        (["<|im_start|>", "<|im_end|>", "<image>", "</image>"], "<image>"),
        (["<|im_start|>", "<|im_end|>", "<|audio_start|>", "<|audio_end|>"], ""),
    ],
)  # fmt: skip
def test_an_image_in_a_chat_has_the_tokens_that_there_are(names: list[str], text: str) -> None:
    assert image_text(names) == text


def test_what_prepares_sounds_is_made_for_the_encoder_beside_it(tmp_path: Path) -> None:
    """It lies in the encoder's folder, and a deeper encoder is still written anew."""
    transformers: Any = pytest.importorskip("transformers")
    found, folder = Components(tmp_path, [], {}, torch.float32), tmp_path / "whisper"
    with found.answering():
        model = transformers.WhisperModel.from_pretrained(str(folder))
        extractor = transformers.AutoFeatureExtractor.from_pretrained(str(folder))
        with pytest.raises(NoTinyModelError, match="AutoFeatureExtractor"):
            transformers.AutoFeatureExtractor.from_pretrained(str(tmp_path / "nothing"))
    assert (model.config.encoder_layers, model.config.d_model) == (2, 32)
    heard = extractor([0.0] * 1600, sampling_rate=16_000, return_tensors="pt").input_features
    assert model.encoder(heard).last_hidden_state.shape[-1] == 32
    assert found.fit(IndexError("index 32 is out of bounds for dimension 2 with size 3"))
    assert found.layers[folder] == 32
    assert not folder.exists()


def test_a_processor_brings_what_prepares_its_inputs(tmp_path: Path) -> None:
    transformers: Any = pytest.importorskip("transformers")
    found = Components(tmp_path, [], {}, torch.float32)
    with found.answering():
        processor = transformers.Wav2Vec2Processor.from_pretrained(str(tmp_path / "wav2vec2"))
    assert type(processor.feature_extractor).__name__ == "Wav2Vec2FeatureExtractor"


def test_a_part_that_is_built_of_its_configuration_alone_is_written_too(tmp_path: Path) -> None:
    """The engine loads its weights afterwards, from the same folder."""
    diffusers: Any = pytest.importorskip("diffusers")
    found = Components(tmp_path, [], {"vae": {"scaling_factor": 0.36}}, torch.float32)
    found.channels = 16
    with found.answering():
        config = diffusers.AutoencoderKL.load_config(str(tmp_path), subfolder="vae")
    assert (config["latent_channels"], config["scaling_factor"]) == (16, 0.36)
    assert (tmp_path / "vae" / "diffusion_pytorch_model.safetensors").is_file()
    (tmp_path / "vae" / "config.json").write_text('{"latent_channels": 8, "stays": "as it is"}')
    with found.answering():
        assert diffusers.AutoencoderKL.load_config(str(tmp_path / "vae"))["stays"] == "as it is"


def test_another_repository_is_a_folder_of_the_checkpoint(tmp_path: Path) -> None:
    hub: Any = pytest.importorskip("huggingface_hub")
    found = Components(tmp_path, [], {}, torch.float32)
    with found.answering():
        places = [hub.HfApi().snapshot_download("someone/parts", allow_patterns=["vae/*"])]
        places.append(hub.snapshot_download(repo_id="someone/parts"))
    assert places == [str(tmp_path / "hub/someone/parts")] * 2
    assert Path(places[0]).is_dir()


OWN_FILE = """
import json
from pathlib import Path

import torch


class Toy(torch.nn.Module):
    def __init__(self, hidden_size: int = 8192, depth: int = 4):
        super().__init__()
        self.body = torch.nn.ModuleList(torch.nn.Linear(hidden_size, hidden_size) for _ in range(depth))


def build_denoiser(od_config):
    with (Path(od_config.model) / "base" / "config.json").open() as file:
        settings = json.load(file)
    sizes = {name: settings[name] for name in ("hidden_size", "depth") if name in settings}
    return Toy(**sizes), [("base", "transformer.", None)]
"""


def test_sizes_stand_where_the_builder_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {"toy_denoiser": OWN_FILE, "toy_model": MODEL}.items():
        (tmp_path / "own_file").mkdir(exist_ok=True)
        (tmp_path / f"own_file/{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    found = PortedModule("own_file", FACTS)
    monkeypatch.setattr(found, "_keys", lambda module, sources: {name: name for name, _ in module.named_parameters()})
    folder = tmp_path / "checkpoint"
    (folder / "base").mkdir(parents=True)
    settings = found.write(folder, {}, torch.float32)
    assert (settings["hidden_size"], settings["depth"]) == (96, 2)
    assert json.loads((folder / "base/config.json").read_text())["hidden_size"] == 96
    assert (folder / "base/diffusion_pytorch_model.safetensors").is_file()


@pytest.mark.parametrize(
    ("source", "start"), [('(None, "", None)', "transformer."), ('("transformer", "transformer.", None)', "")]
)
def test_in_files_of_all_parts_the_denoisers_names_say_whose_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, start: str
) -> None:
    from safetensors import safe_open

    found = toy(tmp_path, monkeypatch, DENOISER.replace('("transformer", "transformer.", None)', source))
    monkeypatch.setattr(found, "_keys", lambda module, sources: {name: name for name, _ in module.named_parameters()})
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    found.write(folder, {}, torch.float32)
    place = folder if start else folder / "transformer"
    with safe_open(place / "diffusion_pytorch_model.safetensors", framework="pt") as file:
        assert set(file.keys()) == {f"{start}body.weight", f"{start}body.bias"}
    assert found.shared is bool(start)


def test_two_encoders_of_different_width_are_named_with_their_keys(tmp_path: Path) -> None:
    """Both are made in one width; where each asks for its own, the one that was left is asked for again."""
    found = Components(tmp_path, [], {}, torch.float32)
    first = found.scale.hidden

    def asks(width: int) -> RuntimeError:
        for folder, key in (("text_encoder", "hidden_size"), ("text_encoder_2", "d_model")):
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / "config.json").write_text(json.dumps({key: found.scale.hidden}))
            found.written[tmp_path / folder] = "encoder"
        return RuntimeError(f"mat1 and mat2 shapes cannot be multiplied (7x{found.scale.hidden} and {width}x16)")

    assert found.fit(asks(first + 16))
    assert found.fit(asks(first + 48))
    with pytest.raises(NoTinyModelError) as caught:
        found.fit(asks(first + 16))
    assert f"are to be {first + 16} and {first + 48} wide" in str(caught.value)
    assert "set hidden_size in [verify.components.text_encoder] and d_model in [verify.components." in str(caught.value)
    assert "text_encoder_2] of scaffold.toml" in str(caught.value)
