"""Trees of other hands: packages listed in a loop, two algorithms of one architecture, a module of a library's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from scaffold.check import check_paths
from scaffold.check.example import FILES
from scaffold.check.settings import Settings

REGISTRY = """import importlib

_PACKAGES = ("toy_flow_grpo",)
__all__ = []
for _name in _PACKAGES:
    _found = importlib.import_module(f"{__name__}.{_name}")
    globals().update({_n: getattr(_found, _n) for _n in _found.__all__})
    __all__ += _found.__all__
"""
SECOND = '''"""Another objective."""

from verl_omni.pipelines.model_base import DiffusionModelBase
from verl_omni.pipelines.toy_flow_grpo.toy_model import OmniToy


@DiffusionModelBase.register("OmniToyForConditionalGeneration", algorithm="toy_sft")
class ToySft(DiffusionModelBase):
    @classmethod
    def build_module(cls, model_config, torch_dtype):
        return OmniToy.from_pretrained(model_config.local_path)

    @classmethod
    def prepare_model_inputs(cls, *args, **kwargs):
        raise NotImplementedError("an engine of its own does this")
'''
LOADED = '''"""A module that transformers loads."""

from verl_omni.pipelines.model_base import DiffusionModelBase


@DiffusionModelBase.register("NeoModel", algorithm="flow_grpo")
class Neo(DiffusionModelBase):
    @classmethod
    def build_module(cls, model_config, torch_dtype):
        from transformers import AutoModel

        return AutoModel.from_pretrained(model_config.local_path, trust_remote_code=True)

    @classmethod
    def prepare_model_inputs(cls, module, model_config, latents, timesteps, micro_batch, step):
        dtype = next(module.parameters()).dtype
        layers = module.config.layers
        if hasattr(module, "encode"):
            module.encode(latents)
        tokens = module.patchify(latents.to(dtype), layers)
        return {"tokens": tokens + module.parts["time"](timesteps)}, None
'''


@pytest.fixture
def tree(tmp_path: Path, write_base: Callable[..., Path]) -> Path:
    return write_base(tmp_path / "tree")


def found(tree: Path, *select: str) -> list[str]:
    """Rule and file of each finding."""
    return [f"{f.rule} {f.key}" for f in check_paths([tree], select=select, settings=Settings()).findings]


def test_packages_that_are_imported_in_a_loop_are_not_unlisted(tree: Path) -> None:
    registry = tree / "verl_omni/pipelines/__init__.py"
    registry.write_text('import importlib\n\nimportlib.import_module("json")\n__all__ = []\n')
    assert found(tree, "OSC502") == ["OSC502 verl_omni/pipelines/toy_flow_grpo/__init__.py"]
    registry.write_text(REGISTRY)
    assert found(tree, "OSC5") == []


def test_a_second_algorithm_of_an_architecture_has_its_own_scripts_and_engine(tree: Path) -> None:
    before = found(tree)
    folder = tree / "verl_omni/pipelines/sft_of_toy"
    folder.mkdir()
    (folder / "__init__.py").write_text('from .adapter import ToySft\n\n__all__ = ["ToySft"]\n')
    (folder / "adapter.py").write_text(SECOND)
    registry = tree / "verl_omni/pipelines/__init__.py"
    registry.write_text(REGISTRY.replace('"toy_flow_grpo",', '"toy_flow_grpo", "sft_of_toy"'))
    scripts = tree / "examples/sft_trainer/toy"
    scripts.mkdir(parents=True)
    launch = (tree / FILES["launch"]).read_text()
    (scripts / "run_toy_sft.sh").write_text(launch.replace("algorithm=flow_grpo", "algorithm=toy_sft"))
    assert "toy_sft" in (scripts / "run_toy_sft.sh").read_text()
    more = [one for one in found(tree, "OSC207", "OSC501", "OSC524") if one not in before]
    assert more == []
    launch = launch.replace("algorithm=flow_grpo", "algorithm=nobodys")
    (tree / FILES["launch"]).write_text(launch)
    assert set(found(tree, "OSC501")) == {f"OSC501 {FILES['launch']}"}, "one that nobody has is still a mistake"


def test_what_a_loaded_module_computes_outside_of_its_forward(tree: Path) -> None:
    folder = tree / "verl_omni/pipelines/neo_flow_grpo"
    folder.mkdir()
    (folder / "__init__.py").write_text('from .adapter import Neo\n\n__all__ = ["Neo"]\n')
    (folder / "adapter.py").write_text(LOADED)
    report = check_paths([folder], select=["OSC214"], settings=Settings())
    asked = "is asked of whatever wraps the module"
    assert [finding.message for finding in report.findings] == [f"module.patchify {asked}", f"module.parts {asked}"]
    (folder / "adapter.py").write_text(LOADED.replace("module.patchify", "patchify").replace("module.parts", "parts"))
    assert found(folder, "OSC214") == []


STEP = """
    @classmethod
    def prepare_model_inputs(cls, module, model_config, latents, timesteps, prompt_embeds, micro_batch, step):
        text_len = prompt_embeds.shape[1]
        tiles = torch.arange(latents.shape[2], device=latents.device)
        grid = torch.stack([torch.full_like(tiles, text_len), tiles // 32, tiles % 32])
        return {"indexes": grid, "t": timesteps[:, step]}, None

    @classmethod
    def forward_and_sample_previous_step(
        cls, module, scheduler, model_config, model_inputs, negative_model_inputs, scheduler_inputs, step
    ):
        latents, timesteps = scheduler_inputs["all_latents"], scheduler_inputs["all_timesteps"]
        return scheduler.sample_previous_step(
            sample=latents[:, step].float(),
            model_output=module(**model_inputs)[0],
            timestep=timesteps[:, step],
            prev_sample=latents[:, step + 1].float(),
            noise_level=model_config.algo.noise_level,
            sde_type=model_config.algo.sde_type,
        )
"""
ROLLOUT = """

@VllmOmniPipelineBase.register("NeoModel", algorithm="flow_grpo")
class NeoRollout(VllmOmniPipelineBase):
    def forward(self, req):
        return {"prompt_embeds": self.embeds, "prompt_embeds_mask": self.mask}
"""


def test_a_step_with_a_loaded_module(tree: Path) -> None:
    """No contract drives a module of a library, so the text of its step is all that is looked at."""
    folder = tree / "verl_omni/pipelines/neo_flow_grpo"
    folder.mkdir()
    (folder / "__init__.py").write_text('from .adapter import Neo, NeoRollout\n\n__all__ = ["Neo", "NeoRollout"]\n')
    head = LOADED[: LOADED.index("    @classmethod\n    def prepare_model_inputs")].rstrip()
    base = "import DiffusionModelBase"
    text = f"{head.replace(base, f'{base}, VllmOmniPipelineBase')}\n{STEP}{ROLLOUT}"
    rules = ("OSC119", "OSC214", "OSC217", "OSC237")

    def finds(before: str = "", after: str = "") -> list[str]:
        assert before in text
        (folder / "adapter.py").write_text(text.replace(before, after) if before else text)
        return [found.partition(" ")[0] for found in found_in(folder)]

    def found_in(folder: Path) -> list[str]:
        return found(folder, *rules)

    assert finds() == ["OSC119"]
    own = "mask.sum(1)[0]"
    assert finds("torch.full_like(tiles, text_len)", f"torch.full_like(tiles, {own})") == []
    assert finds('"prompt_embeds_mask": self.mask', '"pooled": self.mask') == [], "all prompts may be of one length"
    assert finds("timestep=timesteps[:, step]", "timestep=timesteps[0, step]") == ["OSC119", "OSC217"]
    assert finds("latents[:, step + 1].float()", "latents[:, step]") == ["OSC119", "OSC237"]
