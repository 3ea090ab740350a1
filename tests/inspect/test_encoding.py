"""Which call makes the ids that the model is conditioned on, and what is told about the pipeline's own surroundings."""

from __future__ import annotations

from pathlib import Path

from synthetic import EULER, SOURCE, look, written

REWRITER = """
        asked = self.processor.apply_chat_template([{"content": prompt.get("prompt")}])
        written = self.writer.generate(**self.processor(asked))
        words = self.processor.batch_decode(written)
        cond = self.tokenizer(words, add_special_tokens=False).input_ids
"""


def test_text_that_a_language_model_rewrites_first(tmp_path: Path) -> None:
    init = "from transformers import AutoModelForCausalLM, AutoProcessor\n"
    init += "self.processor = AutoProcessor.from_pretrained(od_config.model)\n"
    init += "self.writer = AutoModelForCausalLM.from_pretrained(od_config.model)"
    made = written(init=init)
    plain = '        cond = self.encode(prompt.get("prompt"))\n'
    assert plain in made
    found = look(tmp_path, pipeline=made.replace(plain, REWRITER))
    assert found.value("detail.prompt.chat_template") is False
    assert found.value("detail.prompt.add_special_tokens") is False


def test_configuration_among_parts_that_may_be_handed_over(tmp_path: Path) -> None:
    made = written()
    before, after = "def __init__(self, *, od_config", "def __init__(self, net: Net | None = None, *, od_config"
    assert before in made
    found = look(tmp_path, pipeline=made.replace(before, after))
    assert found.value("detail.config.class") == "Options"


def test_weights_in_a_folder_that_is_looked_up(tmp_path: Path) -> None:
    init = "from elsewhere import profile_of\n"
    init += "from vllm_omni.diffusion.models.made_up.loader import Source\n"
    init += "folder = profile_of(od_config.model).folder\n"
    init += 'self.weights_sources = [Source(model_or_path=od_config.model, subfolder=folder, prefix="net.")]'
    found = look(tmp_path, EULER, init=init, modules={"loader.py": SOURCE})
    assert found.fact("checkpoint.files").confidence == "unknown"


def test_scheduler_of_the_library_by_a_longer_name(tmp_path: Path) -> None:
    loop = "self.scheduler.set_timesteps(steps)\nfor t in self.scheduler.timesteps:\n"
    loop += "    v = self.net(x, t, cond)\n    x = self.scheduler.step(v, t, x)[0]\n"
    init = "from diffusers.schedulers import EulerDiscreteScheduler\n"
    init += "self.scheduler = EulerDiscreteScheduler.from_pretrained(od_config.model)"
    assert look(tmp_path, loop, init=init).value("scheduler.class") == "EulerDiscreteScheduler"
