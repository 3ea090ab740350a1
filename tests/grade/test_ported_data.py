"""Data scripts of ported packages: what inspect knows of prompts, negatives, media and solver is in them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from scaffold.new import render_package
from scaffold.render.runtime import is_runtime
from tests.grade.test_needs import readme, spec_of
from tests.rendered_module import load

pytestmark = pytest.mark.upstream


@cache
def files(key: str) -> dict[str, str]:
    found, _ = render_package(spec_of(key), [], None)
    return {path: file.content for path, file in found.items() if not is_runtime(path)}


def module(key: str, ending: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A rendered file as a module; libraries that it imports and only a training has are stood in for."""
    (path,) = [path for path in files(key) if path.endswith(ending)]
    place = folder / Path(path).name
    place.write_text(files(key)[path], encoding="utf-8")
    return load(place, monkeypatch)


@pytest.mark.parametrize("key", ["WanS2VPipeline", "OmniGen2Pipeline", "LingBotVideoPipeline", "AnimaPipeline"])
def test_no_row_overrides_the_pipelines_own_negative_prompt(key: str) -> None:
    (script,) = [text for path, text in files(key).items() if "/data_process/" in path]
    assert '"negative_prompt"' not in script
    assert "NEGATIVE_PROMPT" not in script


def test_the_readme_says_whose_negative_prompt_it_is() -> None:
    assert "the pipeline's own" in readme("OmniGen2Pipeline")
    assert "zeros in place of a prompt's embeddings" in readme("MingImageDiffusionPipeline")


def test_a_solver_that_is_replaced_is_named() -> None:
    for key in ("WanS2VPipeline", "LingBotVideoPipeline"):
        assert "| solver | `FlowUniPCMultistepScheduler` in the pipeline, Euler steps" in readme(key)
    assert "| solver |" not in readme("OmniGen2Pipeline")


def test_structured_captions_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = module("LingBotVideoPipeline", "_prompts.py", tmp_path, monkeypatch)
    row = script.build_row({"prompt": {"subject": "ein Füchslein", "shots": [1, 2]}}, "train", 0, "x")
    assert row["prompt"] == [{"role": "user", "content": '{"subject":"ein Füchslein","shots":[1,2]}'}]
    assert script.build_row({"prompt": '{"subject": "a fox"}'}, "train", 0, "x")["prompt"][0]["content"] == (
        '{"subject":"a fox"}'
    )
    for plain in ("a fox", "", "[1]", {}, None):
        with pytest.raises(ValueError, match=r"plain words|no object"):
            script.build_row({"prompt": plain}, "train", 0, "x")
    assert "Captions have to be brought; the script refuses plain words." in readme("LingBotVideoPipeline")


def test_required_files_are_in_the_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = module("WanS2VPipeline", "_prompts.py", tmp_path, monkeypatch)
    (tmp_path / "face.png").touch()
    (tmp_path / "voice.wav").touch()
    record = {"prompt": "she sings", "image": "face.png", "audio": "voice.wav"}
    row = script.build_row(record, "train", 0, "x", str(tmp_path))
    inputs = json.loads(row["extra_info"]["inputs"])
    assert inputs == {"image": str(tmp_path / "face.png"), "audio": str(tmp_path / "voice.wav")}
    for name in ("image", "audio"):
        with pytest.raises(ValueError, match=f"no {name}, which the pipeline needs"):
            script.build_row({k: v for k, v in record.items() if k != name}, "train", 0, "x", str(tmp_path))
        with pytest.raises(ValueError, match=f"{name} is 'gone', which is no file"):
            script.build_row({**record, name: "gone"}, "train", 0, "x", str(tmp_path))


def test_the_agent_loop_puts_them_into_the_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    image = pytest.importorskip("PIL.Image")
    found = module("WanS2VPipeline", "/agent_loop.py", tmp_path, monkeypatch)
    image.new("RGBA", (4, 6)).save(tmp_path / "face.png")
    (tmp_path / "voice.wav").touch()
    inputs = {"image": str(tmp_path / "face.png"), "audio": str(tmp_path / "voice.wav")}

    class Server:
        async def generate(self, **kwargs: Any) -> dict[str, Any]:
            return kwargs

    loop = found.WanS2VAgentLoop(Server())
    sent = asyncio.run(loop.run({}, extra_info={"inputs": json.dumps(inputs)}))
    assert sent["prompt_ids"] == [1, 2]
    assert (sent["image_data"].size, sent["image_data"].mode) == ((4, 6), "RGB")
    assert sent["audio_data"] == inputs["audio"]
    assert isinstance(loop.server_manager, Server)  # the next row's request has its own
    for lacking in ({}, {"image": inputs["image"]}, {**inputs, "audio": str(tmp_path / "gone.wav")}):
        with pytest.raises(ValueError, match="audio"):
            asyncio.run(loop.run({}, extra_info={"inputs": json.dumps(lacking)}))


def test_a_file_that_a_request_may_leave_out_is_taken_where_a_row_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = pytest.importorskip("PIL.Image")
    key = "LongCatVideoAvatarPipeline"
    script = module(key, "_prompts.py", tmp_path, monkeypatch)
    image.new("RGB", (6, 4)).save(tmp_path / "face.png")
    (tmp_path / "voice.wav").touch()
    words = {"prompt": "she sings", "audio": "voice.wav"}
    for record, kinds in ((words, {"audio"}), ({**words, "image": "face.png"}, {"audio", "image"})):
        row = script.build_row(record, "train", 0, "x", str(tmp_path))
        inputs = json.loads(row["extra_info"]["inputs"])
        assert inputs == {kind: str(tmp_path / record[kind]) for kind in kinds}
        loop = module(key, "/agent_loop.py", tmp_path, monkeypatch)
        media = loop.LongCatVideoAvatarAgentLoop.read_media(row["extra_info"])
        assert media["audio"] == str(tmp_path / "voice.wav")
        assert ({"image"} if "image" in media else set()) == kinds - {"audio"}
    with pytest.raises(ValueError, match="no audio, which the pipeline needs"):
        script.build_row({"prompt": "she sings", "image": "face.png"}, "train", 0, "x", str(tmp_path))


def test_the_scripts_start_the_engine_with_the_models_own_settings() -> None:
    """Weights in int8 and a distilled LoRA are the pipeline's defaults, and neither can be trained."""
    key = "LongCatVideoAvatarPipeline"
    for path in (path for path in files(key) if path.endswith(".sh")):
        for name in ("use_int8", "use_distill"):
            assert (
                f"+actor_rollout_ref.rollout.engine_kwargs.vllm_omni.additional_config.{name}=False\n"
                in files(key)[path]
            )
    (builder,) = [text for path, text in files(key).items() if path.endswith("_denoiser.py")]
    assert "class QuantizedLinear" not in builder
    assert "load_lora" not in builder
    assert 'CFG_DEFAULTS: dict[str, Any] = {"text_guidance_scale": 4.0, "audio_guidance_scale": 4.0}' in "".join(
        files(key).values()
    )
    text = readme(key)
    assert "`use_int8=False`, `use_distill=False`" in text
    assert "are left out: the pipeline reads the weights in place of calling the layers" in text


def test_what_the_rollout_wants_of_a_machine_is_said() -> None:
    text = readme("LongCatVideoAvatarPipeline")
    assert "`pip install 'vllm-omni[longcat-video-avatar]'`" in text
    assert 'as prepare; prepare(sys.argv[1], use_int8=False)" "$MODEL_PATH"' in text
    for key in ("WanS2VPipeline", "AnimaPipeline"):
        assert "pip install" not in readme(key)
        assert "prepare(" not in readme(key)


VALUES = {"action": "w-8", "intrinsics": {"fx": 1.0, "fy": 1.0, "cx": 0.5, "cy": 0.5}}


def test_required_values_are_in_the_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = module("SanaWmPipeline", "_prompts.py", tmp_path, monkeypatch)
    (tmp_path / "room.png").touch()
    record = {"prompt": "a room", "image": "room.png", "sana_wm": VALUES}
    row = script.build_row(record, "train", 0, "x", str(tmp_path))
    assert json.loads(row["extra_info"]["inputs"]) == {"image": str(tmp_path / "room.png"), "sana_wm": VALUES}
    for lacking in ({}, {"sana_wm": "w-8"}, {"sana_wm": {"action": None, "intrinsics": {}}}):
        with pytest.raises(ValueError, match="no sana_wm with camera or action, which the pipeline needs"):
            script.build_row({"prompt": "a room", "image": "room.png", **lacking}, "train", 0, "x", str(tmp_path))
    assert "`sana_wm` of each object is a table of values with `camera` or `action`" in readme("SanaWmPipeline")


def test_the_agent_loop_puts_values_among_the_extra_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    image = pytest.importorskip("PIL.Image")
    found = module("SanaWmPipeline", "/agent_loop.py", tmp_path, monkeypatch)
    image.new("RGB", (4, 6)).save(tmp_path / "room.png")
    inputs = {"image": str(tmp_path / "room.png"), "sana_wm": VALUES}

    class Server:
        async def generate(self, **kwargs: Any) -> dict[str, Any]:
            return kwargs

    given = {"height": 64}
    loop = found.SanaWmAgentLoop(Server())
    sent = asyncio.run(loop.run(given, extra_info={"inputs": json.dumps(inputs)}))
    assert sent["sampling_params"] == {"height": 64, "sana_wm": VALUES}
    assert sent["image_data"].size == (4, 6)
    assert given == {"height": 64}  # the next row's request has its own
    with pytest.raises(ValueError, match="no sana_wm with camera or action"):
        asyncio.run(loop.run({}, extra_info={"inputs": json.dumps({"image": inputs["image"]})}))


def test_scales_that_a_request_always_has_are_set_by_the_scripts() -> None:
    """Where nobody sets it, verl-omni's configuration sends a scale of 1, which is no guidance."""
    for path, text in files("AnimaPipeline").items():
        if path.endswith(".sh"):
            assert "actor_rollout_ref.rollout.pipeline.true_cfg_scale=4.0\n" in text
    assert not any("pipeline.guidance_scale=" in text for text in files("OmniGen2Pipeline").values())


def test_the_scripts_name_the_loop_and_send_the_text_alone() -> None:
    mine = files("WanS2VPipeline")
    (settings,) = [text for path, text in mine.items() if path.endswith("_agent_loop.yaml")]
    assert "_target_: verl_omni.pipelines.wan_s2_v_flow_grpo.agent_loop.WanS2VAgentLoop" in settings
    for path in (path for path in mine if path.endswith(".sh")):
        assert "wan_s2_v_agent_loop.yaml" in mine[path]
        assert "custom_chat_template=" in mine[path]
    other = "".join(text for path, text in files("OmniGen2Pipeline").items() if path.endswith(".sh"))
    assert "agent_loop" not in other
    assert "custom_chat_template" not in other


def test_what_verl_omni_does_not_carry_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    found = module("Pi0Pipeline", "/agent_loop.py", tmp_path, monkeypatch)
    with pytest.raises(NotImplementedError, match=r"robot_obs\).*verl_omni/agent_loop/\w+\.py:\d+"):
        asyncio.run(found.Pi0AgentLoop(None).run({}))
