"""One class under several keys: the index beside the weights says which it is, and the table has a row for each."""

from __future__ import annotations

from pathlib import Path

import pytest
import synthetic
from synthetic import look

from scaffold.inspect import inspect_pipeline
from scaffold.inspect.table import inspect_all
from scaffold.upstream import locate

INIT = """
import json
import os
self.fast = False
if os.path.exists(od_config.model):
    index = os.path.join(od_config.model, "model_index.json")
    if os.path.exists(index):
        self.fast = json.load(open(index)).get("_class_name") == "FastPipeline"
else:
    try:
        from huggingface_hub import hf_hub_download
        index = hf_hub_download(repo_id=od_config.model, filename="model_index.json")
        with open(index) as handle:
            self.fast = json.load(handle).get("_class_name") == "FastPipeline"
    except OSError:
        pass
"""
LOOP = """
sigmas = torch.linspace(1.0, 0.0, steps + 1)
for i in range(steps):
    v = self.net(x, sigmas[i], cond)
    if self.fast:
        x = x - sigmas[i] * v
        x = (1 - sigmas[i + 1]) * x + sigmas[i + 1] * torch.randn_like(x)
    else:
        x = x + (sigmas[i + 1] - sigmas[i]) * v
"""
REGISTRY = """
_DIFFUSION_MODELS = {
    "MadeUpPipeline": ("made_up", "pipeline", "MadeUpPipeline"),
    "SamePipeline": ("made_up", "pipeline", "MadeUpPipeline"),
    "FastPipeline": ("made_up", "pipeline", "MadeUpPipeline"),
}
"""


def test_each_name_has_its_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "REGISTRY", REGISTRY)
    assert look(tmp_path, LOOP, init=INIT).verdict["path"] == "non_diffusers"
    assert inspect_pipeline(locate(str(tmp_path)), "FastPipeline").verdict["path"] == "refused"
    rows = inspect_all(str(tmp_path), processes=1)["pipelines"]
    assert [(row["registry_keys"], row["verdict"]["path"]) for row in rows] == [
        (["MadeUpPipeline", "SamePipeline"], "non_diffusers"),
        (["FastPipeline"], "refused"),
    ]


def test_a_class_with_one_name_asks_its_index(tmp_path: Path) -> None:
    assert look(tmp_path, LOOP, init=INIT).verdict["path"] == "non_diffusers"


@pytest.mark.upstream
def test_a_distilled_name_of_a_real_class() -> None:
    source = locate("0.30.0")
    plain, distilled = (inspect_pipeline(source, key) for key in ("WanPipeline", "WanDMDPipeline"))
    assert (plain.verdict["path"], distilled.verdict["path"]) == ("diffusers", "refused")
    assert plain.value("scheduler.steps") == "n"
    assert plain.value("scheduler.class") == "FlowUniPCMultistepScheduler"
    assert distilled.fact("verdict.path").evidence[0].line == 674
