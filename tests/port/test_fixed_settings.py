"""Settings of the engine's that a package fixes decide what its builder makes; it fetches no checkpoint."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.port.conftest import HEAD, PortText, Run

TEXT = (
    HEAD
    + """
import json
from contextlib import nullcontext
from pathlib import Path
from vllm_omni.diffusion.loader import Loader
from vllm_omni.diffusion.local import get_local_device


class Model(nn.Module):
    def __init__(self, size=1, packed=False):
        super().__init__()
        self.packed = packed
        self.linear = nn.Linear(size, size)

    def forward(self, x):
        return self.linear(x)

    def load_adapter(self, path):
        raise RuntimeError(path)

    def load_weights(self, weights):
        own = dict(self.named_parameters())
        return {name for name, tensor in weights if own[name].data.copy_(tensor) is not None}


def packed_model(folder):
    return Model(size=1, packed=True)


def plain_model(folder, subfolder):
    with (Path(folder) / subfolder / "config.json").open() as file:
        return Model(**json.load(file)).eval()


def switched_on(value, default):
    if value is None:
        return default
    if isinstance(value, str):
        return value.strip().lower() not in {"0", "no"}
    return bool(value)


def local_folder(model, patterns=None):
    place = Path(model)
    if place.exists():
        return place
    from vllm_omni.hub import hub

    return Path(hub().snapshot_download(model, allow_patterns=patterns))


class Pipeline(nn.Module):
    def __init__(self, *, od_config, prefix=""):
        super().__init__()
        self.od_config = od_config
        self.device = get_local_device()
        own = getattr(od_config, "additional_config", {}) or {}
        self.packs = switched_on(own.get("packs"), True)
        self.adapted = switched_on(own.get("adapted"), True)
        self.on_device = switched_on(own.get("on_device"), False)
        self.folder = local_folder(od_config.model, patterns=["*"])
        subfolder = "packed" if self.packs else "plain"
        self.weights_sources = [Loader.ComponentSource(model_or_path=str(self.folder), subfolder=subfolder,
                                                       revision=None, prefix="transformer.")]
        self.load_parts()

    def load_parts(self):
        try:
            from sound_library import Separator
        except ImportError as error:
            raise ImportError("install sound_library") from error
        context = nullcontext() if self.on_device else torch.device("cpu")
        with context:
            if self.packs:
                self.transformer = packed_model(str(self.folder))
            else:
                self.transformer = plain_model(str(self.folder), subfolder="plain")
                self.transformer = self.transformer.to(dtype=self.od_config.dtype)
            adapted = False
            if self.adapted:
                self.transformer.load_adapter(str(self.folder / "adapter"))
                adapted = True
        if adapted:
            self.transformer.eval()
        self.separator = Separator()

    def load_weights(self, weights):
        return self.transformer.load_weights(weights)
"""
)
PLAIN = {"packs": False, "adapted": "no"}


def test_only_what_the_settings_lead_to_is_built(port_text: PortText, run: Run, tmp_path: Path) -> None:
    port = port_text(TEXT, pipeline="Pipeline", settings=PLAIN)
    assert (port.builder, port.gaps, port.streamed) == ("build_denoiser", (), True)
    for absent in ("packed_model", "load_adapter", "sound_library", "switched_on", "snapshot_download"):
        assert absent not in port.text
    ported = run(port)
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "config.json").write_text('{"size": 3}')
    built, sources = ported.build_denoiser(SimpleNamespace(model=str(tmp_path)))
    assert (built.linear.in_features, built.packed) == (3, False)
    assert sources == [("plain", "transformer.", None)]


def test_a_checkpoint_that_would_be_fetched_is_an_error(port_text: PortText, run: Run, tmp_path: Path) -> None:
    ported = run(port_text(TEXT, pipeline="Pipeline", settings=PLAIN))
    with pytest.raises(FileNotFoundError, match="nobody/knows"):
        ported.build_denoiser(SimpleNamespace(model="nobody/knows"))


@pytest.mark.parametrize("settings", [None, {}, {"packs": False}, {"packs": False, "adapted": True}])
def test_an_adapter_that_is_loaded_over_the_weights_is_not_followed(
    port_text: PortText, settings: dict[str, object] | None
) -> None:
    """Without settings nothing says which side the pipeline takes; its own defaults load an adapter."""
    assert port_text(TEXT, pipeline="Pipeline", settings=settings).builder == ""


def test_the_other_setting_builds_the_other_model(port_text: PortText, run: Run, tmp_path: Path) -> None:
    ported = run(port_text(TEXT, pipeline="Pipeline", settings={"packs": True, "adapted": False}))
    built, sources = ported.build_denoiser(SimpleNamespace(model=str(tmp_path)))
    assert (built.packed, sources[0][0]) == (True, "packed")


def test_a_name_that_is_assigned_again_decides_nothing(port_text: PortText) -> None:
    again = TEXT.replace(
        "        self.load_parts()\n", "        self.adapted = bool(prefix)\n        self.load_parts()\n"
    )
    assert again != TEXT
    assert port_text(again, pipeline="Pipeline", settings=PLAIN).builder == ""
