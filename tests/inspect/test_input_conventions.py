"""What the pipeline is given, what it loads, and what it does not have."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import EULER, SOURCE, look, written


@pytest.mark.parametrize(
    ("condition", "kind"),
    [
        ('self.encode(prompt.get("prompt"))', ["text"]),
        ('self.encode(prompt["prompt"])', ["text"]),
        ('prompt.get("prompt_embeds")', ["embeds"]),
        ('prompt["prompt_token_ids"]', ["token_ids"]),
        ('prompt["additional_information"]["hidden_states"]', ["embeds"]),
        ('(prompt.get("additional_information") or {}).get("text_hidden_states")', ["embeds"]),
    ],
)
def test_kind_of_prompt(tmp_path: Path, condition: str, kind: list[str]) -> None:
    pipeline = written().replace('self.encode(prompt.get("prompt"))', condition)
    assert look(tmp_path, pipeline=pipeline).value("prompt.kind") == kind


def test_no_autoencoder_at_all(tmp_path: Path) -> None:
    for key in ("vae.class", "vae.downsample", "vae.channels"):
        assert look(tmp_path, EULER).value(key) is None


def test_autoencoder_by_its_use(tmp_path: Path) -> None:
    init = "from diffusers import AutoencoderKL, AutoencoderTiny\n"
    init += "self.vae = AutoencoderKL.from_pretrained(od_config.model, subfolder='vae')\n"
    init += "self.unused = AutoencoderTiny.from_pretrained(od_config.model)"
    found = look(tmp_path, EULER + "x = self.vae.decode(x, return_dict=False)[0]\n", init=init)
    assert found.value("vae.class") == "AutoencoderKL"


SOURCES = """
from vllm_omni.diffusion.models.made_up.loader import Source

self.weights_sources = [Source(model_or_path=od_config.model, subfolder=None, prefix="net.")]
"""


def test_loader_that_streams(tmp_path: Path) -> None:
    found = look(tmp_path, EULER, init=SOURCES, modules={"loader.py": SOURCE})
    assert found.value("checkpoint.files") == ["*.safetensors"]


def test_loader_in_the_constructor(tmp_path: Path) -> None:
    init = "import os\nfrom safetensors.torch import load_file\n"
    init += "self.weights_sources = []\n"
    init += 'self.net.load_state_dict(load_file(os.path.join(od_config.model, "inner", "net.safetensors")))'
    found = look(tmp_path, EULER, init=init)
    assert found.value("checkpoint.files") == ["inner/net.safetensors"]


def test_loader_that_is_declared_but_never_called(tmp_path: Path) -> None:
    before = """

def old_loader(path):
    from safetensors.torch import load_file

    return load_file(path + "/never.safetensors")
"""
    found = look(tmp_path, EULER, init=SOURCES, before=before, modules={"loader.py": SOURCE})
    assert found.value("checkpoint.files") == ["*.safetensors"]


def test_request_that_is_refused_without_an_observation(tmp_path: Path) -> None:
    loop = 'if params.extra_args.get("observation") is None:\n    raise ValueError("none")\n' + EULER
    found = look(tmp_path, loop)
    assert found.verdict["path"] == "non_diffusers"
    assert "observation" in found.value("prompt.extra_args")


def test_loop_behind_an_opaque_call(tmp_path: Path) -> None:
    before = """

class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def denoise(self, x, cond, num_steps):
        sigmas = torch.linspace(1.0, 0.0, num_steps + 1)
        for i in range(num_steps):
            x = x + (sigmas[i + 1] - sigmas[i]) * self.net(x, sigmas[i], cond)
        return x
"""
    init = "from somewhere import build\nself.policy = build(od_config.model)"
    found = look(tmp_path, "x = self.policy.denoise(x, cond, steps)\n", init=init, before=before)
    assert (found.verdict["path"], found.fact("verdict.path").confidence) == ("non_diffusers", "likely")
    assert found.fact("scheduler.inline").value is True
    assert found.fact("scheduler.inline").confidence == "likely"
