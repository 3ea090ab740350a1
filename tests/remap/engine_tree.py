"""A small made-up vllm-omni: a pipeline, its loading code and a LoRA manager, parts of which a test may replace."""

from __future__ import annotations

import textwrap
from pathlib import Path

from scaffold.upstream import UpstreamSource, locate

REGISTRY = '_DIFFUSION_MODELS = {"SmallPipeline": ("small", "pipeline_small", "SmallPipeline")}\n'

MANAGER = """
class DiffusionLoRAManager:
    def _compute_packed_modules_mapping(self):
        for module in self.pipeline.modules():
            self.read(getattr(module, "stacked_params_mapping", None))

    def _get_packed_modules_list(self, module):
        if isinstance(module, QKVParallelLinear):
            return ["q", "k", "v"]
        if isinstance(module, MergedColumnParallelLinear):
            return ["0", "1"]
        return []

    def _replace_layers_with_lora(self, peft_helper):
        names = ("transformer", "unet")
        for component in (*names, *getattr(self.pipeline, "_lora_components", ())):
            self.walk(component)

    def _get_lora_weights(self, lora_model, name):
        return lora_model.get_lora(name)
"""

LAYERS = """
from torch import nn
from vllm.model_executor.layers.layernorm import RMSNorm
from vllm.model_executor.layers.linear import (
    MergedColumnParallelLinear, QKVParallelLinear, ReplicatedLinear, RowParallelLinear,
)
from vllm.model_executor.model_loader.weight_utils import default_weight_loader
from vllm.model_executor.models.utils import AutoWeightsLoader


class Attention(nn.Module):
    def __init__(self, config, prefix):
        super().__init__()
        self.qkv_proj = QKVParallelLinear(config.hidden, 64, 4, bias=False, prefix=prefix)
        self.o_proj = RowParallelLinear(config.hidden, config.hidden, bias=False)


class Layer(nn.Module):
    def __init__(self, config, prefix):
        super().__init__()
        self.attn = Attention(config, prefix)
        self.gate_up_proj = MergedColumnParallelLinear(config.hidden, [1, 1], bias=False)
        self.down_proj = RowParallelLinear(config.hidden, config.hidden, bias=False)
        self.norm = RMSNorm(config.hidden)


class Denoiser(nn.Module):
    {table}

    def __init__(self, config):
        super().__init__()
        self.layers = nn.ModuleList([Layer(config, f"layers.{{i}}") for i in range(config.depth)])
        self.head = ReplicatedLinear(config.hidden, 4, bias=False)

    def load_weights(self, weights):
        stacked = [
            (".qkv_proj", ".q_proj", "q"), (".qkv_proj", ".k_proj", "k"), (".qkv_proj", ".v_proj", "v"),
            (".gate_up_proj", ".gate_proj", 0), (".gate_up_proj", ".up_proj", 1),
        ]
        {keep}
        params = dict(self.named_parameters())
        loaded = set()
        for name, weight in weights:
            {first}
            for target, source, shard in stacked:
                if source not in name:
                    continue
                name = name.replace(source, target)
                param = params[name]
                param.weight_loader(param, weight, shard)
                break
            else:
                if name not in params:
                    continue
                param = params[name]
                loader = getattr(param, "weight_loader", default_weight_loader)
                loader(param, weight)
            loaded.add(name)
        return loaded


class SmallPipeline(nn.Module):
    {pipeline}

    def __init__(self, *, od_config, prefix=""):
        super().__init__()
        self.{component} = Denoiser(od_config.config)

    def load_weights(self, weights):
        {start}
        return AutoWeightsLoader(self).load_weights(
            ("{component}." + n.removeprefix("model.") if n.startswith("model.") else n, w) for n, w in weights
        )
"""

ADAPTER = """
from vllm_omni.diffusion.models.small.pipeline_small import SmallPipeline

from .model import KEYS


class Rollout(SmallPipeline):
    def load_weights(self, weights):
        return super().load_weights(self._named(weights))

    @staticmethod
    def _named(weights):
        for name, weight in weights:
            if name.startswith("transformer."):
                name = KEYS[0] + name.removeprefix("transformer.")
            yield name, weight
    {more}
"""


def small_upstream(
    folder: Path,
    *,
    manager: str = MANAGER,
    component: str = "transformer",
    table: str = "pass",
    keep: str = "pass",
    first: str = "pass",
    start: str = "pass",
    pipeline: str = "pass",
    layers: str = LAYERS,
) -> UpstreamSource:
    """Write the tree; the named lines replace a ``pass`` each."""
    text = layers.format(table=table, keep=keep, first=first, start=start, pipeline=pipeline, component=component)
    for path, content in {
        "vllm_omni/__init__.py": "",
        "vllm_omni/diffusion/__init__.py": "",
        "vllm_omni/diffusion/registry.py": REGISTRY,
        "vllm_omni/diffusion/lora/manager.py": manager,
        "vllm_omni/diffusion/models/small/__init__.py": "",
        "vllm_omni/diffusion/models/small/pipeline_small.py": text,
    }.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(content))
    return locate(str(folder))
