"""What a person may edit: every knob says what it does, no other key is taken, no value that cannot be had."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from overruled import alter, overrule

from scaffold.errors import ScaffoldError
from scaffold.render import render
from scaffold.spec import IntegrationSpec, read_spec
from scaffold.spec.defaults import DEFAULTS
from scaffold.spec.knobs import KNOBS
from scaffold.spec.validate import validate

PACKAGE = "verl_omni/pipelines/bagel_flow_grpo"


@pytest.fixture
def spec(reference: Path, tmp_path: Path) -> Path:
    for name in ("scaffold.toml", "scaffold.lock.toml"):
        (tmp_path / name).write_bytes((reference / PACKAGE / name).read_bytes())
    return tmp_path / "scaffold.toml"


# Knobs that packages have had from the first on; a later one has a default.
FIRST = {
    "names": ("package", "display", "repository"),
    "schedule": ("shift",),
    "cfg": ("defaults",),
    "guidance": ("defaults",),
    "lora": ("rank", "alpha", "targets"),
    "recipe": (
        *("num_inference_steps", "height", "width", "num_frames", "noise_level", "sde_type", "sde_window_size"),
        *("sde_window_range", "max_prompt_length", "gpus", "reward_model", "reward_gpus", "reward_file"),
        *("reward_function", "train_batch_size", "group_size", "mini_batch_size", "micro_batch_size", "learning_rate"),
        *("weight_decay", "clip_ratio", "model_dtype", "lora_dtype", "validation_steps", "total_steps", "epochs"),
        "save_every",
    ),
    "deploy": ("engine", "stage", "sampling"),
}


def refusal(spec: Path) -> str:
    with pytest.raises(ScaffoldError) as caught:
        validate(read_spec(spec, shown="scaffold.toml").spec, "scaffold.toml")
    assert caught.value.line.startswith("scaffold.toml")
    return caught.value.line


def test_every_line_of_the_file_is_a_knob_and_says_what_it_does(spec: Path) -> None:
    text = spec.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    stored = read_spec(spec).spec
    for name in KNOBS:
        section, _, key = name.partition(".")
        if key in stored.sections.get(section, {}):
            assert KNOBS[name].says in text, name
    assert "cfg_img_scale = 1.0  # weight of the image, 1 for none; upstream 1.5\n" in text
    assert "num_inference_steps = 15  # denoising steps of a rollout; upstream 50\n" in text
    for fact in ("upstream", "architecture", "checkpoint", "tiny", "docs", "grade", "prompt", "tokens"):
        assert f"[{fact}" not in text


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("recipe.num_inference_step", "15", "did you mean num_inference_steps?"),
        ("recip.gpus", "4", "no section is called [recip]; did you mean recipe?"),
        ("lora.target", "[]", "did you mean targets?"),
        ("grade.missing", "[]", "grade.missing is not to be changed"),
        ("cfg.defaults.cfg_txt_scale", "4.0", "did you mean cfg_text_scale?"),
    ],
)
def test_a_key_that_nothing_reads_is_refused(spec: Path, name: str, value: str, said: str) -> None:
    section, _, key = name.rpartition(".")
    text = spec.read_text(encoding="utf-8")
    heading = f"[{section}]"
    rest = f"\n{key} = {value}\n"
    parts = text.partition("\n" if heading not in text else heading)
    if heading in text:
        line, newline, after = parts[2].partition("\n")
        spec.write_text(f"{parts[0]}{heading}{line}{newline}{rest.lstrip()}{after}", encoding="utf-8")
    else:
        spec.write_text(f"{text}\n{heading}{rest}", encoding="utf-8")
    assert said in refusal(spec)


@pytest.mark.parametrize("name", sorted(KNOBS.keys() - {f"{one}.{key}" for one in FIRST for key in FIRST[one]}))
def test_an_older_package_that_lacks_a_knob_renders_with_its_default(
    reference_spec: IntegrationSpec, name: str
) -> None:
    section, _, key = name.partition(".")
    values = {other: value for other, value in reference_spec.sections[section].items() if other != key}
    older = replace(reference_spec, sections={**reference_spec.sections, section: values})
    validate(older, "scaffold.toml")
    assert older.context()[section][key] == DEFAULTS[section][key]
    assert render(older)


def test_an_older_package_with_a_key_that_nothing_reads_any_more_renders_as_it_did(spec: Path) -> None:
    before = render(read_spec(spec).spec)
    alter(spec, "[values.upstream]\n", "[values.levels]\nrises = false\n\n[values.upstream]\nconstructed = true\n")
    older = read_spec(spec).spec
    validate(older, "scaffold.toml")
    assert older.value("upstream.constructed") is True
    assert render(older) == before


@pytest.mark.parametrize(("section", "key"), [("recipe", "num_inference_steps"), ("lora", "rank")])
def test_a_knob_that_is_gone_is_named_with_its_file(spec: Path, section: str, key: str) -> None:
    lines = spec.read_text(encoding="utf-8").splitlines(keepends=True)
    spec.write_text("".join(line for line in lines if not line.startswith(f"{key} = ")), encoding="utf-8")
    assert refusal(spec).startswith(f"scaffold.toml: {section}.{key} is missing; write {key} = … in [{section}]")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("recipe.num_inference_steps", "-1", "a positive integer"),
        ("recipe.sde_window_range", "[0, 60]", "within the 14 steps of a rollout"),
        ("recipe.sde_window_size", "8", "at most the 7 steps"),
        ("recipe.micro_batch_size", "5", "a divisor of the 64 images of an update on each of 4 GPUs"),
        ("recipe.mini_batch_size", "12", "a divisor of the 32 prompts"),
        ("recipe.gpus", "3", "a divisor of the 256 images"),
        ("recipe.height", "1001", "a multiple of 16 pixels"),
        ("recipe.width", "2048", "at most 1024"),
        ("recipe.model_dtype", '"half"', "bfloat16, float16 or float32"),
        ("recipe.sde_type", '"sdes"', "sde, cps or dance_sde"),
        ("recipe.clip_ratio", "2.0", "a number between 0 and 1"),
        ("recipe.group_size", "1", "a whole number from 2"),
        ("lora.targets", '["q_projj"]', "which has no q_projj"),
        ("lora.targets", '["input_layernorm"]', "which has no input_layernorm"),
        ("lora.rank", "-2", "a whole number, 0 for no adapter"),
        ("architecture.mlp", '"other"', "one of 'swiglu'"),
    ],
)
def test_a_value_that_cannot_be_had_is_refused(spec: Path, name: str, value: str, said: str) -> None:
    if name == "lora.targets":
        text = spec.read_text(encoding="utf-8")
        begin = text.index("targets = [")
        spec.write_text(f"{text[:begin]}targets = {value}\n{text[text.index(']', begin) + 2 :]}", encoding="utf-8")
    else:
        overrule(spec, name, value)
    line = refusal(spec)
    assert name in line
    assert said in line


def test_a_fact_that_a_person_writes_goes_first_and_stays_theirs(spec: Path) -> None:
    overrule(spec, "prompt.column", '"my_ids"')
    stored = read_spec(spec).spec
    assert stored.value("prompt.column") == "my_ids"
    toml, lock = stored.to_files()
    assert '[prompt]\ncolumn = "my_ids"\n' in toml
    assert IntegrationSpec.from_toml(toml, lock=lock) == stored


def test_a_value_without_effect_is_no_key(reference_spec: IntegrationSpec) -> None:
    """Settings of guidance that requests bring stand once."""
    assert reference_spec.value("cfg.parameters") is None
    assert reference_spec.value("cfg.defaults")["cfg_text_scale"] == 4.0
