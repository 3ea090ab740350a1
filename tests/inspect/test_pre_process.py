"""What the function that makes a request ready reads and puts in before the pipeline gets it."""

from __future__ import annotations

from pathlib import Path

import pytest
import synthetic
from synthetic import EULER, look

READY = """

def get_ready_func(od_config: Options):
    def ready(request: Request):
        prompt = request.prompts[0]
        params = request.sampling_params
{body}
        return request

    return ready
"""


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    table = '\n_DIFFUSION_PRE_PROCESS_FUNCS = {\n    "MadeUpPipeline": "get_ready_func",\n}\n'
    monkeypatch.setattr(synthetic, "REGISTRY", synthetic.REGISTRY + table)


def _ready(body: str) -> str:
    return READY.format(body="".join(f"        {line}\n" for line in body.strip().splitlines()))


def test_keys_that_only_it_reads(tmp_path: Path) -> None:
    body = 'levels = (params.extra_args or {}).get("levels")\nstyle = prompt.get("style")\nseed = params.seed'
    found = look(tmp_path, before=_ready(body))
    assert found.value("prompt.extra_args") == ["levels"]
    assert found.value("prompt.prompt_keys") == ["prompt", "style"]
    assert "seed" in found.value("prompt.sampling_params")


def test_keys_that_it_puts_in_are_not_the_requests(tmp_path: Path) -> None:
    body = """
extra = dict(params.extra_args or {})
script = extra.get("script")
extra["_parsed_script"] = script
extra["strength"] = extra.get("strength", 2.0)
params.extra_args = extra
prompt["_width"] = 64
"""
    loop = 'parsed = params.extra_args.get("_parsed_script")\nwidth = prompt.get("_width")\n'
    loop += 'strength = params.extra_args.get("strength")\n' + EULER
    found = look(tmp_path, loop, before=_ready(body))
    assert sorted(found.value("prompt.extra_args")) == ["script", "strength"]
    assert found.value("prompt.prompt_keys") == ["prompt"]


def test_dictionary_put_in_place_of_the_requests(tmp_path: Path) -> None:
    body = 'params.extra_args = {**params.extra_args, "_size": params.extra_args.get("size")}'
    loop = 'size = params.extra_args.get("_size")\n' + EULER
    assert look(tmp_path, loop, before=_ready(body)).value("prompt.extra_args") == ["size"]


def test_key_that_it_puts_in_now_and_then_stays(tmp_path: Path) -> None:
    body = 'if params.num_inference_steps > 9:\n    prompt["mode"] = "slow"'
    found = look(tmp_path, 'mode = prompt.get("mode")\n' + EULER, before=_ready(body))
    assert found.value("prompt.prompt_keys") == ["prompt", "mode"]


def test_media_without_which_it_refuses_a_request(tmp_path: Path) -> None:
    body = """
media = prompt.get("multi_modal_data")
if media is None:
    raise ValueError("an image, please")
image = media["image"]
near = params.extra_args.get("near")
"""
    found = look(tmp_path, before=_ready(body))
    assert found.value("prompt.prompt_keys") == ["prompt", "multi_modal_data"]
    assert found.value("prompt.extra_args") == ["near"]
    # The pipeline itself is still executed on a request without it.
    assert found.value("scheduler.steps") == "n"


def test_partial_function(tmp_path: Path) -> None:
    before = """
from functools import partial


def ready(request: Request, *, limit):
    if request.sampling_params.extra_args.get("area", 1) > limit:
        raise ValueError("too large")
    return request


def get_ready_func(od_config: Options):
    return partial(ready, limit=9)


"""
    assert look(tmp_path, before=before).value("prompt.extra_args") == ["area"]


def test_function_that_is_not_found_leaves_nothing_certain(tmp_path: Path) -> None:
    before = "from elsewhere import get_ready_func\n"
    found = look(tmp_path, before=before)
    assert found.value("prompt.prompt_keys") == ["prompt"]
    assert found.facts["answers.prompt.prompt_keys"].confidence == "likely"
    assert found.facts["answers.scheduler.steps"].confidence == "certain"
