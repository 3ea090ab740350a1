"""What a rollout adapter sees of vllm-omni: requests, outputs and the class it inherits from."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

MODULE = "vllm_omni.diffusion.models.some_model.pipeline_some_model"


def batch(prompt: Any, **params: Any) -> Any:
    from vllm_omni.diffusion.request import OmniDiffusionRequest
    from vllm_omni.diffusion.worker.request_batch import DiffusionRequestBatch
    from vllm_omni.inputs.data import OmniDiffusionSamplingParams

    return DiffusionRequestBatch([OmniDiffusionRequest(prompt, OmniDiffusionSamplingParams(**params), "r0")])


def test_any_upstream_pipeline_can_be_inherited_from(kit: Path) -> None:
    from vllm_omni.diffusion.data import OmniDiffusionConfig

    module = importlib.import_module(MODULE)
    upstream = module.SomeModelPipeline
    assert upstream is module.SomeModelPipeline, "the same class each time"
    assert (upstream.__module__, upstream.__name__) == (MODULE, "SomeModelPipeline")
    assert issubclass(upstream, torch.nn.Module)
    assert upstream is not module.OtherPipeline

    class WithLogProb(upstream):
        def __init__(self, *, od_config: Any, prefix: str = "") -> None:
            super().__init__(od_config=od_config, prefix=prefix)
            self.scheduler = "recorder"

    pipeline = WithLogProb(od_config=OmniDiffusionConfig(model="m", dtype=torch.float32))
    assert (pipeline.scheduler, pipeline.scheduler_kwargs, pipeline.od_config.model) == ("recorder", {}, "m")
    with pytest.raises(NotImplementedError, match=rf"{MODULE}\.SomeModelPipeline is the contract kit's stand-in"):
        pipeline(batch("text"))
    weight = torch.ones(1)
    assert pipeline.load_weights(iter([("a", weight), ("b", weight)])) == {"a", "b"}
    assert [name for name, _ in pipeline.received_weights] == ["a", "b"]
    with pytest.raises(TypeError):
        upstream(OmniDiffusionConfig())


def test_modules_stand_in_for_classes_only(kit: Path) -> None:
    module = importlib.import_module(MODULE)
    for name in ("helper", "CONSTANT", "_Private", "__wrapped__"):
        with pytest.raises(AttributeError, match=name):
            getattr(module, name)
    for name in ("get_some_pre_process_func", "get_some_post_process_func"):
        assert getattr(module, name)(None)({"a": 1}) == {"a": 1}
    from vllm_omni.diffusion.models.some_model import pipeline_some_model  # a name that is a module

    assert pipeline_some_model is module
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("vllm_omni.diffusion.nothing")


def test_output_envelope(kit: Path) -> None:
    from verl_omni.pipelines.diffusion_rollout_output import rollout_output

    latents = torch.ones(1, 3, 4, 2, requires_grad=True)
    out = rollout_output(
        media=latents,
        trajectory_latents=latents,
        trajectory_log_probs=latents[:, 0, 0],
        trajectory_timesteps=[0.5],
        prompt_embeddings={"prompt_embeds": latents},
        rl={"extra": 1},
        metadata={"note": "kept"},
    )
    assert out.output["payload"].keys() == {"image"}
    assert out.output["metadata"].keys() == {"prompt_embeddings", "rl", "note"}
    assert not out.trajectory_latents.requires_grad
    assert not out.output["payload"]["image"].requires_grad
    assert not out.output["metadata"]["prompt_embeddings"]["prompt_embeds"].requires_grad
    assert out.trajectory_timesteps == [0.5]

    kept = rollout_output(media="text", media_key="output", trajectory_latents=latents, to_cpu=False)
    assert kept.trajectory_latents is latents
    assert kept.output == {"payload": {"output": "text"}, "metadata": {}}
    with pytest.raises(TypeError):
        rollout_output("positional")


def test_request_fills_in_defaults_before_the_pipeline_sees_them(kit: Path) -> None:
    silent = batch({"prompt_token_ids": [1]}).sampling_params
    assert silent.guidance_scale == silent.guidance_scale_2 == 1.0
    assert silent.guidance_scale_provided is False
    assert isinstance(silent.seed, int)

    spoken = batch({"prompt": "a", "negative_prompt": "b"}, guidance_scale=3.0, seed=7).sampling_params
    assert (spoken.guidance_scale, spoken.guidance_scale_2, spoken.seed) == (3.0, 3.0, 7)
    assert spoken.guidance_scale_provided
    assert spoken.do_classifier_free_guidance
    assert batch("a", guidance_scale=0.0).sampling_params.guidance_scale == 0.0, "0 is a value on main"
    assert batch("a", guidance_scale=3.0).sampling_params.do_classifier_free_guidance is False
    assert spoken.clone().extra_args is not spoken.extra_args


def test_batch_of_one_reads_like_a_request(kit: Path) -> None:
    from vllm_omni.diffusion.worker.request_batch import DiffusionRequestBatch

    one = batch({"prompt": "a"}, extra_args={"noise_level": 0.7})
    assert one.prompts == [{"prompt": "a"}]
    assert one.sampling_params is one.sampling_params_list[0] is one.requests[0].sampling_params
    assert (one.request_id, one.request_ids, one.num_reqs, one.kv_sender_info) == ("r0", ["r0"], 1, None)
    assert one.get("r0") is one.requests[0]
    assert one.get("r1") is None
    assert not one.is_dummy_run()
    two = DiffusionRequestBatch(one.requests * 2)
    with pytest.raises(AssertionError, match="2 requests"):
        _ = two.sampling_params
    with pytest.raises(ValueError, match="request_id"):
        type(one.requests[0])("a", one.sampling_params, "")


def test_helpers_of_verl(kit: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensordict")
    from tensordict.tensorclass import NonTensorData
    from verl.utils.device import get_device_name
    from verl.utils.hdfs_io import copy, makedirs
    from verl.utils.tensordict_utils import unwrap_non_tensor_data

    assert get_device_name() == ("cuda" if torch.cuda.is_available() else "cpu")
    assert unwrap_non_tensor_data(NonTensorData([1, 2])) == [1, 2]
    assert unwrap_non_tensor_data([1, 2]) == [1, 2]
    makedirs(str(tmp_path / "a" / "b"))
    with pytest.raises(FileExistsError):
        makedirs(str(tmp_path / "a" / "b"))
    (tmp_path / "a" / "b" / "f").write_text("x")
    assert copy(src=str(tmp_path / "a"), dst=str(tmp_path / "c")) == os.fspath(tmp_path / "c")
    assert (tmp_path / "c" / "b" / "f").read_text() == "x"
    with pytest.raises(NotImplementedError, match="hdfs://there"):
        copy(src=str(tmp_path), dst="hdfs://there")
