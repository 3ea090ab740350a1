"""A packaged preset is for its own pipelines, whatever a package of another one is called."""

from __future__ import annotations

import pytest

from scaffold.render.names import model_name
from scaffold.spec.preset import find_preset, presets

PIPELINES = {pipeline: preset for preset in presets() for pipeline in preset.pipelines}


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_a_pipeline_has_its_own_preset_under_every_name(pipeline: str) -> None:
    names = {"another", model_name(pipeline), *(preset.name for preset in presets())}
    assert {find_preset(name, pipeline).name for name in names} == {PIPELINES[pipeline].name}


def test_a_pipeline_without_one_gets_none_by_its_name_and_a_package_without_a_pipeline_its_model_s() -> None:
    for preset in presets():
        assert find_preset(preset.name, "NoSuchPipeline").pipelines == ()
        assert find_preset(preset.name, None) == preset
