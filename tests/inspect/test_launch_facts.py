"""What a launch script is made of: the kind of media, topologies, sizes; answers by hand from the sources."""

from __future__ import annotations

from functools import cache

import pytest
from altered import Copy

from scaffold.inspect import Report, inspect_pipeline
from scaffold.upstream import locate

pytestmark = pytest.mark.upstream


@cache
def report(version: str, pipeline: str) -> Report:
    return inspect_pipeline(locate(version), pipeline)


@pytest.mark.parametrize(
    ("version", "pipeline", "kind", "confidence"),
    [
        ("0.30.0", "WanS2VPipeline", "video", "certain"),  # the engine's table of models
        ("0.30.0", "AuKPipeline", "audio", "certain"),  # the class
        ("0.30.0", "Gr00tN1d7Pipeline", "action", "certain"),  # the topology
        ("0.30.0", "InternVLAA1Pipeline", "action", "certain"),  # the result, two dictionaries deep
        ("0.30.0", "AnimaPipeline", "image", "likely"),  # what the engine takes every other model for
        ("0.27.0rc1", "OmniGen2Pipeline", "image", "likely"),  # its autoencoder; that engine's table has no column
        ("0.27.0rc1", "WanS2VPipeline", "video", "likely"),  # it asks for a number of frames
        ("0.27.0rc1", "InternVLAA1Pipeline", "action", "certain"),
    ],
)
def test_kind_of_media(version: str, pipeline: str, kind: str, confidence: str) -> None:
    fact = report(version, pipeline).fact("detail.media.kind")
    assert (fact.value, fact.confidence) == (kind, confidence)
    assert fact.evidence


def test_inputs_beside_text() -> None:
    assert report("0.30.0", "AuKPipeline").value("detail.media.inputs") == ["audio"]
    assert report("0.30.0", "WanS2VPipeline").value("detail.media.inputs") == ["image", "audio"]
    assert report("0.30.0", "AnimaPipeline").value("detail.media.inputs") == []
    asked = report("0.30.0", "OmniGen2Pipeline").fact("detail.media.inputs")  # by the function that makes it ready
    assert (asked.value, asked.confidence) == (["image"], "likely")


def test_topologies() -> None:
    (auk,) = report("0.30.0", "AuKPipeline").value("detail.engine.topologies")
    assert auk == {"name": "auk", "stage": 1, "before": ["encoder"], "output": "audio", "file": "auk.yaml"}
    (gr00t,) = report("0.30.0", "Gr00tN1d7Pipeline").value("detail.engine.topologies")
    assert (gr00t["before"], gr00t["file"]) == ([], "Gr00tN1d7.yaml")
    assert report("0.30.0", "AnimaPipeline").value("detail.engine.topologies") == []


def test_settings_of_a_topology_of_one_stage_leave_out_where_it_runs() -> None:
    settings = report("0.30.0", "HunyuanImage3ForCausalMM").value("detail.engine.deploy_settings")
    assert settings["stage"]["max_num_seqs"] == 1
    assert not {"devices", "parallel_config", "gpu_memory_utilization", "stage_id"} & set(settings["stage"])
    assert report("0.30.0", "AuKPipeline").fact("detail.engine.deploy_settings").confidence == "unknown"


@pytest.mark.parametrize("version", ["0.22.0", "0.27.0rc1", "0.30.0"])
def test_the_engine_can_be_told_the_class(version: str) -> None:
    assert report(version, "OmniGen2Pipeline").value("detail.engine.class_option") == "model_class_name"


def test_sizes_that_the_pipeline_fills_in() -> None:
    assert report("0.30.0", "AnimaPipeline").value("detail.request.sizes") == {
        "height": 1024, "num_inference_steps": 50, "width": 1024,
    }  # fmt: skip
    # The height follows from sizes of the checkpoint.
    sizes = report("0.30.0", "OmniGen2Pipeline").value("detail.request.sizes")
    assert sizes == {"height": None, "num_inference_steps": 28, "width": None}


def test_answers_follow_the_source(tmp_path_factory: pytest.TempPathFactory) -> None:
    source = locate("0.30.0")
    copy = Copy(source, tmp_path_factory.mktemp("launch") / "upstream", ("auk",))
    pipeline = "vllm_omni/diffusion/models/auk/pipeline_auk.py"
    copy.replace(
        pipeline, "support_audio_output: ClassVar[bool] = True", "support_audio_output: ClassVar[bool] = False"
    )
    topology = "vllm_omni/model_executor/models/auk/pipeline.py"
    for file in (topology, "vllm_omni/config/pipeline_registry.py"):
        copy.write(file, source.read(file))
    copy.replace(topology, 'final_output_type="audio"', 'final_output_type="video"')
    copy.replace(topology, 'model_stage="encoder"', 'model_stage="thinker"')
    changed = inspect_pipeline(copy.source(), "AuKPipeline")
    assert changed.value("detail.media.kind") == "video"
    assert changed.value("detail.engine.topologies")[0]["before"] == ["thinker"]
