"""What VeRL saves of a training module's configuration with every checkpoint, whatever the denoiser has for one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from diffusers.configuration_utils import ConfigMixin, FrozenDict, register_to_config
from safetensors.torch import save_file
from torch import nn

from flow_grpo_runtime.checkpoint import DenoiserSource
from flow_grpo_runtime.composed_module import SavedSizes
from flow_grpo_runtime.module import TrainedDenoiser
from flow_grpo_runtime.saved_config import released_texts, saved_config

RELEASED = {"_class_name": "Net", "hidden_size": 6, "patch_size": [1, 2, 2]}


class Plain(nn.Module):
    _no_split_modules = ()

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(6, 6, bias=False)


class Namespaced(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(hidden_size=6, dtype=torch.bfloat16)


@dataclass(frozen=True)
class Sizes:
    hidden_size: int = 6
    patch_size: tuple[int, ...] = (1, 2, 2)
    inner: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(depth=2))


class Dataclassed(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.config = Sizes()


class Frozen(Plain, ConfigMixin):
    config_name = "config.json"

    @register_to_config
    def __init__(self, hidden_size: int = 6, patch_size: tuple[int, ...] = (1, 2, 2)) -> None:
        Plain.__init__(self)


KINDS = {"none": Plain, "namespace": Namespaced, "dataclass": Dataclassed, "diffusers": Frozen}


@pytest.fixture(params=["released", "one file"])
def release(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A released checkpoint with its configuration beside the weights, or without any."""
    folder = tmp_path / "release" / "transformer"
    folder.mkdir(parents=True)
    save_file({"out.weight": torch.randn(6, 6)}, folder / "model.safetensors")
    if request.param == "released":
        (folder / "config.json").write_text(json.dumps(RELEASED))
        (folder.parent / "model_index.json").write_text('{"_class_name": "Pipe"}')
    return folder.parent


def loaded(kind: str, release: Path) -> Any:
    def build(config: Any) -> tuple[nn.Module, Any]:
        return KINDS[kind](), [("transformer", "", None)]

    base: Any = KINDS[kind]
    made = type(
        "Trained", (TrainedDenoiser, base), {"_source": DenoiserSource(build), "__module__": "pipes.net_flow.model"}
    )
    return made.from_pretrained(str(release), torch_dtype=torch.float32)


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_trainer_saves_can_be_read_again(kind: str, release: Path, tmp_path: Path) -> None:
    module = loaded(kind, release)
    module.config.save_pretrained(str(tmp_path / "saved"))
    written = json.loads((tmp_path / "saved/config.json").read_text())
    assert written["model_type"] == "net_flow"
    assert written["architectures"] == ["Trained"]
    if (release / "transformer/config.json").is_file():
        assert written.items() >= RELEASED.items()
        for name in ("transformer/config.json", "model_index.json"):
            assert (tmp_path / "saved" / name).read_text() == (release / name).read_text()
    else:
        assert written.get("hidden_size", 6) == 6
        assert ("hidden_size" in written) == (kind != "none")
    texts = released_texts(str(tmp_path / "saved"), every=False)
    again: Any = saved_config(None, json.loads(texts["config.json"]), texts)
    assert again.model_type == "net_flow"
    again.save_pretrained(str(tmp_path / "twice"))
    assert _files(tmp_path / "twice") == _files(tmp_path / "saved")


@pytest.mark.parametrize("kind", ["namespace", "dataclass", "diffusers"])
def test_the_denoiser_reads_its_configuration_as_before(kind: str, release: Path) -> None:
    before, module = KINDS[kind](), loaded(kind, release)
    config: Any = module.config
    assert isinstance(config, type(before.config))
    assert config.hidden_size == 6
    if kind == "diffusers":
        assert isinstance(config, FrozenDict)
        assert config["patch_size"] == (1, 2, 2)
        assert dict(config) == dict(before.config)
    if kind == "dataclass":
        assert config.inner.depth == 2
        assert json.loads(json.dumps(config.to_dict()))["hidden_size"] == 6
    assert vars(config).keys() >= vars(before.config).keys()


def test_a_root_configuration_of_the_release_keeps_its_values(tmp_path: Path) -> None:
    folder = tmp_path / "release"
    folder.mkdir()
    save_file({"out.weight": torch.randn(6, 6)}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "s2v", "dim": 6, "auto_map": {"AutoModel": "x.Y"}}))

    def build(config: Any) -> tuple[nn.Module, Any]:
        module: Any = Plain()
        module.config = SimpleNamespace(auto_map={"AutoModel": "x.Y"}, dim=6)
        return module, [(None, "", None)]

    made: Any = type("Trained", (TrainedDenoiser, Plain), {"_source": DenoiserSource(build), "__module__": "a.b.c"})
    config = made.from_pretrained(str(folder)).config
    # VeRL would copy the Python files that it names.
    assert not hasattr(config, "auto_map")
    config.save_pretrained(str(tmp_path / "saved"))
    written = json.loads((tmp_path / "saved/config.json").read_text())
    assert (written["model_type"], written["dim"], written["architectures"]) == ("s2v", 6, ["Trained"])


@dataclass
class NetSizes(SavedSizes):
    hidden_size: int = 8
    spans: tuple[int, ...] = (2, 3)


def test_composed_sizes_stand_beside_the_released_configuration(tmp_path: Path) -> None:
    sizes = NetSizes(16, (4, 5))
    sizes.note_release(Plain, {"config.json": '{"model_type": "bagel", "vae": 8}', "llm_config.json": "{}"})
    sizes.save_pretrained(str(tmp_path))
    root = json.loads((tmp_path / "config.json").read_text())
    assert (root["model_type"], root["vae"]) == ("bagel", 8)
    assert (tmp_path / "llm_config.json").read_text() == "{}"
    assert NetSizes.saved(root) == sizes
    assert NetSizes.saved({"model_type": "bagel", "vae": 8}) is None


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    """A process group of this process."""
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)  # type: ignore[attr-defined]
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def test_a_sharded_module_is_not_saved_for_a_whole_one(alone: None, release: Path, tmp_path: Path) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    module = loaded("namespace", release)
    fully_shard(module, mesh=init_device_mesh("cpu", (1,)))
    with pytest.raises(ValueError, match=r"is sharded.*omni-scaffold export"):
        module.save_pretrained(str(tmp_path / "saved"))
    module.config.save_pretrained(str(tmp_path / "config"))
    assert (tmp_path / "config/config.json").is_file()


def test_weights_that_are_saved_without_the_adapter_are_told(
    release: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    module = loaded("namespace", release)
    module.peft_config = {"default": object()}
    module.save_pretrained(str(tmp_path / "saved"))
    assert "without the adapter" in caplog.text


def _files(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*.json")}
