"""Which media a request may bring, and clean samples that guidance makes of velocities."""

from __future__ import annotations

from pathlib import Path

from synthetic import EULER, look

from scaffold.inspect import Report

READS = 'media = prompt.get("multi_modal_data") or {{}}\nshown = media.get("{kind}")\n'


def _media(found: Report) -> tuple[object, str]:
    fact = found.facts["detail.media.inputs"]
    return fact.value, fact.confidence


def test_media_that_are_read_count_beside_what_the_class_says(tmp_path: Path) -> None:
    assert _media(look(tmp_path / "none")) == ([], "certain")
    assert _media(look(tmp_path / "read", READS.format(kind="video") + EULER)) == (["video"], "likely")
    takes = "\n\nclass TakesImages:\n    support_image_input = True\n"
    found = look(tmp_path / "said", before=takes, bases="nn.Module, TakesImages")
    assert _media(found) == (["image"], "certain")
    refused = READS.format(kind="video") + 'if shown is not None:\n    raise ValueError("no video")\n'
    found = look(tmp_path / "refused", refused + EULER, before=takes, bases="nn.Module, TakesImages")
    assert _media(found) == (["image"], "likely")


def test_what_a_pipeline_above_says_is_not_certain(tmp_path: Path) -> None:
    above = """

class Above(nn.Module):
    support_image_input = True

    def forward(self, req):
        return None
"""
    assert _media(look(tmp_path, before=above, bases="Above")) == (["image"], "likely")


def test_sound_beside_something_else_is_a_videos(tmp_path: Path) -> None:
    sounds = "\n\nclass Sounds:\n    support_audio_output = True\n"
    alone = look(tmp_path / "alone", before=sounds, bases="nn.Module, Sounds")
    assert alone.facts["detail.media.kind"].value == "audio"
    pair = look(tmp_path / "pair", EULER + "return Output(output=(x, x))", before=sounds, bases="nn.Module, Sounds")
    assert pair.facts["detail.media.kind"].value == "video"
    assert pair.facts["detail.media.kind"].confidence == "likely"


CLEAN = """
sigmas = torch.linspace(1.0, 0.0, steps + 1)
kinds = self.kinds()
for i in range(steps):
    made = {{kind: {made} for kind in kinds}}
    guided = made["plain"] + (scale - 1) * (made["plain"] - made.get("empty", 0.0))
    v = (x - guided) / sigmas[i]
    x = x + (sigmas[i + 1] - sigmas[i]) * v
"""


def test_clean_sample_that_is_made_of_a_velocity_is_no_prediction(tmp_path: Path) -> None:
    found = look(tmp_path / "made", CLEAN.format(made="x - sigmas[i] * self.net(x, sigmas[i], cond)"))
    assert found.facts["detail.denoiser.predicts_clean"].value is False
    found = look(tmp_path / "read", CLEAN.format(made="self.net(x, sigmas[i], cond)"))
    assert found.facts["detail.denoiser.predicts_clean"].value is True


LOADED = """

class Lowering(FlowMatchEulerDiscreteScheduler):
    def __init__(self, shift=3.0):
        super().__init__(shift=shift)

    def lowest(self):
        return self.shift * self._made_later


"""


def test_what_a_scheduler_gives_itself_is_in_no_file(tmp_path: Path) -> None:
    before = "from diffusers import FlowMatchEulerDiscreteScheduler\n" + LOADED
    init = "self.lowering = Lowering.from_pretrained(od_config.model)"
    found = look(tmp_path, "low = self.lowering.lowest()\n" + EULER, before=before, init=init)
    assert found.facts["detail.config_files"].value["config.json"]["keys"] == {"shift": 3.0}
