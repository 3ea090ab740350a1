"""The kit and a rendered tree seen as one package, whatever else is on the path."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from installed import require

from scaffold.files.resources import kit_root

require("torch", "diffusers", "tensordict")

PACKAGE = {
    "__init__.py": "from .training import FooDiffusion\nfrom .rollout import FooPipelineWithLogProb\n"
    "__all__ = ['FooDiffusion', 'FooPipelineWithLogProb']\n",
    "training.py": """
import torch
from tensordict.tensorclass import NonTensorStack
from verl.utils import tensordict_utils as tu
from verl.utils.device import get_device_name
from verl_omni.pipelines.model_base import DiffusionModelBase
from verl_omni.pipelines.non_diffusers_model_base import NonDiffusersModelBase
from verl_omni.pipelines.schedulers import FlowMatchSDEDiscreteScheduler
from verl_omni.workers.config import DiffusionModelConfig

class FooForTraining(NonDiffusersModelBase):
    pass

@DiffusionModelBase.register("OmniFoo", algorithm="flow_grpo")
class FooDiffusion(DiffusionModelBase):
    pass
""",
    "rollout.py": """
from vllm_omni.diffusion.data import DiffusionOutput, OmniDiffusionConfig
from vllm_omni.diffusion.models.foo.pipeline_foo import FooPipeline
from vllm_omni.diffusion.worker.request_batch import DiffusionRequestBatch
from verl_omni.pipelines.diffusion_rollout_output import rollout_output
from verl_omni.pipelines.foo_flow_grpo import training
from verl_omni.pipelines.model_base import VllmOmniPipelineBase

@VllmOmniPipelineBase.register("OmniFoo", algorithm="flow_grpo")
class FooPipelineWithLogProb(FooPipeline):
    pass
""",
}
PRINT_BOTH = """
import verl_omni, vllm_omni, verl_omni.pipelines.foo_flow_grpo as package
from verl_omni.pipelines.model_base import DiffusionModelBase, VllmOmniPipelineBase
print(DiffusionModelBase.get_class_by_name("OmniFoo", "flow_grpo").__name__)
print(VllmOmniPipelineBase.get_pipeline_path("OmniFoo", "flow_grpo"))
print(package.__file__)
print(verl_omni.__contract__, getattr(vllm_omni, "__contract__", "real"))
"""
PATH_OF_ROLLOUT = "verl_omni.pipelines.foo_flow_grpo.rollout.FooPipelineWithLogProb"


def write_package(root: Path) -> Path:
    folder = root / "verl_omni" / "pipelines" / "foo_flow_grpo"
    folder.mkdir(parents=True)
    for name, text in PACKAGE.items():
        (folder / name).write_text(text)
    return folder / "__init__.py"


@pytest.mark.parametrize("kit_first", [True, False])
def test_rendered_package_imports_in_both_orders(run_python: Any, tmp_path: Path, kit_first: bool) -> None:
    init = write_package(tmp_path)
    path = (kit_root(), tmp_path) if kit_first else (tmp_path, kit_root())
    assert run_python(PRINT_BOTH, *path).split("\n")[:4] == ["FooDiffusion", PATH_OF_ROLLOUT, str(init), "kit kit"]


def test_kit_first_serves_a_package_inside_a_checkout(run_python: Any, tmp_path: Path) -> None:
    """A checkout's own package initialisers import the world; the kit's run instead."""
    init = write_package(tmp_path)
    for folder in ("verl_omni", "verl_omni/pipelines"):
        (tmp_path / folder / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (tmp_path / "verl_omni/pipelines/model_base.py").write_text("raise RuntimeError('imported')\n")
    assert str(init) in run_python(PRINT_BOTH, kit_root(), tmp_path)


def test_kit_last_fills_gaps_and_shadows_nothing(run_python: Any, tmp_path: Path) -> None:
    """With a real vllm-omni installed, only what is missing comes from the kit."""
    write_package(tmp_path / "out")
    site = tmp_path / "site"
    shutil.copytree(kit_root() / "vllm_omni", site / "vllm_omni")
    (site / "vllm_omni" / "__init__.py").write_text("")
    (site / "vllm_omni" / "diffusion" / "models" / "__init__.py").write_text("")
    (site / "vllm_omni" / "diffusion" / "models" / "foo").mkdir()
    (site / "vllm_omni" / "diffusion" / "models" / "foo" / "pipeline_foo.py").write_text("class FooPipeline: pass\n")
    code = f"import sys\nsys.path.append({os.fspath(kit_root())!r})\n{PRINT_BOTH}print(package.rollout.FooPipeline)\n"
    lines = run_python(code, tmp_path / "out", site).splitlines()
    assert lines[3:] == ["kit real", "<class 'vllm_omni.diffusion.models.foo.pipeline_foo.FooPipeline'>"]


def test_kit_is_on_the_path_only_when_asked_for(run_python: Any) -> None:
    code = (
        "import importlib.util, scaffold, scaffold.verify\n"
        "specs = [importlib.util.find_spec(n) for n in ('verl', 'verl_omni', 'vllm_omni', 'omni_scaffold_kit')]\n"
        "print([s.origin for s in specs if s])\n"
    )
    assert str(kit_root()) not in run_python(code, Path(__file__).resolve().parents[2])
