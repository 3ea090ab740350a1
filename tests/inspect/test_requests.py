"""What a pipeline is handed: batches, requests without an annotation, defaults that it puts in by itself, media."""

from __future__ import annotations

from pathlib import Path

from synthetic import EULER, look, written

BATCH = """
from dataclasses import dataclass

from vllm_omni.diffusion.request import Single


@dataclass
class Batch:
    requests: list[Single]

    @property
    def prompts(self):
        return [r.prompt for r in self.requests]

    @property
    def sampling_params(self):
        return self.requests[0].sampling_params
"""
SINGLE = """

@dataclass
class Single:
    prompt: str
    sampling_params: SamplingParams
"""


def test_request_without_an_annotation(tmp_path: Path) -> None:
    found = look(tmp_path, pipeline=written().replace("req: Request", "req"))
    assert found.value("prompt.prompt_keys") == ["prompt"]
    assert "num_inference_steps" in found.value("prompt.sampling_params")


def test_single_request_is_handed_over_in_a_batch(tmp_path: Path, monkeypatch) -> None:
    folder = tmp_path / "vllm_omni" / "diffusion" / "worker"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "request_batch.py").write_text(BATCH, encoding="utf-8")
    import synthetic

    monkeypatch.setattr(synthetic, "REQUEST", synthetic.REQUEST + SINGLE)
    pipeline = written().replace("req: Request", "req: Single").replace("Output, Request", "Output, Request, Single")
    assert look(tmp_path, pipeline=pipeline).value("prompt.prompt_keys") == ["prompt"]


def test_default_that_the_pipeline_puts_into_the_extra_arguments(tmp_path: Path) -> None:
    loop = """
params.extra_args.setdefault("strength", 2.5)
scale = params.extra_args.get("strength", 7.0)
none = self.encode("")
sigmas = torch.linspace(1.0, 0.0, steps + 1)
for i in range(steps):
    c = self.net(x, sigmas[i], cond)
    u = self.net(x, sigmas[i], none)
    x = x + (sigmas[i + 1] - sigmas[i]) * (u + scale * (c - u))
"""
    assert look(tmp_path, loop).value("cfg.scales") == {"strength": 2.5}


def test_request_that_a_helper_refuses_without_media(tmp_path: Path) -> None:
    before = """

def settings_of(prompt):
    image = (prompt.get("multi_modal_data") or {}).get("image")
    if image is None:
        raise ValueError("an image is needed")
    return {"text": prompt.get("caption"), "image": image}
"""
    found = look(
        tmp_path, "settings = settings_of(prompt)\ncond = self.encode(settings['text'])\n" + EULER, before=before
    )
    assert "caption" in found.value("prompt.prompt_keys")


def test_list_that_a_turn_fills_is_no_trajectory(tmp_path: Path) -> None:
    loop = """
sigmas = torch.linspace(1.0, 0.0, steps + 1)
for i in range(steps):
    rows = []
    for row in x.unbind():
        rows.append(self.net(row, sigmas[i], cond))
    x = x + (sigmas[i + 1] - sigmas[i]) * torch.stack(rows)
"""
    assert look(tmp_path, loop).value("trajectory.recorded") is False


def test_list_of_all_turns_is_a_trajectory(tmp_path: Path) -> None:
    loop = """
sigmas = torch.linspace(1.0, 0.0, steps + 1)
kept = []
for i in range(steps):
    x = x + (sigmas[i + 1] - sigmas[i]) * self.net(x, sigmas[i], cond)
    kept.append(x)
x = torch.stack(kept)
"""
    assert look(tmp_path, loop).value("trajectory.recorded") is True
