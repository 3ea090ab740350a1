"""A denoiser of an engine's package, imported over plain layers."""

from __future__ import annotations

import hashlib
import os
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, inject_adapter_in_model
from torch import nn

from flow_grpo_runtime.layers import CheckpointedLayer, ExactArguments
from flow_grpo_runtime.upstream import FOLDER, Upstream, take_apart
from flow_grpo_runtime.upstream_layers import CONTEXT, Linear, LoraOfPair

TEXT = """
import torch
import vllm._custom_ops as ops
from torch import nn
from vllm.logger import init_logger
from vllm.model_executor.layers.activation import get_act_and_mul_fn
from vllm.model_executor.layers.linear import MergedColumnParallelLinear, QKVParallelLinear, RowParallelLinear
from vllm.model_executor.layers.quantization import QuantizationConfig
from vllm_omni.diffusion.attention.layer import Attention
from .sizes import WIDTH

logger = init_logger(__name__)
logger.info_once("executed")


class Layer(nn.Module):
    def __init__(self, quant_config: QuantizationConfig | None = None):
        super().__init__()
        self.to_qkv = QKVParallelLinear(WIDTH, WIDTH // 2, 2, quant_config=quant_config)
        self.out = RowParallelLinear(WIDTH, WIDTH)
        self.gate_up = MergedColumnParallelLinear(WIDTH, [WIDTH] * 2, return_bias=False)
        self.down = RowParallelLinear(WIDTH, WIDTH)
        self.act = get_act_and_mul_fn("silu")
        self.attention = Attention(num_heads=2, head_size=WIDTH // 2, causal=False, softmax_scale=None)

    def forward(self, x):
        qkv, _ = self.to_qkv(x)
        q, k, v = (part.unflatten(-1, (2, -1)) for part in qkv.chunk(3, dim=-1))
        y, _ = self.out(self.attention(q, k, v).flatten(-2))
        x = x + y
        return x + self.down(self.act(self.gate_up(x)))[0]


class Model(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.layers = nn.ModuleList([Layer() for _ in range(depth)])

    @torch.no_grad()
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
            x = add(x, x.square())
        return x

    def kernel(self, x):
        return ops.scaled_mm(x)


def add(x, y):
    x[..., :1].add_(y[..., :1])
    return x
"""
SIZES = "WIDTH = 8\n"
PLACE = "vllm_omni/diffusion/models/small"
FUSED = (("Layer", "to_qkv", ("to_q", "to_k", "to_v")), ("Layer", "gate_up", ("gate", "up")))


@pytest.fixture
def upstream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Upstream:
    files = {}
    for name, text in {"model.py": TEXT, "sizes.py": SIZES}.items():
        path = tmp_path / PLACE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        files[f"{PLACE}/{name}"] = hashlib.sha256(text.encode()).hexdigest()
    monkeypatch.setenv(FOLDER, str(tmp_path))
    return Upstream("9.9.9", files)


def made(upstream: Upstream) -> nn.Module:
    torch.manual_seed(0)
    module: nn.Module = upstream("vllm_omni.diffusion.models.small.model:Model")(2)
    return module


def gradients(module: nn.Module) -> dict[str, torch.Tensor]:
    module.zero_grad()
    torch.manual_seed(1)
    module(torch.randn(1, 5, 8)).square().mean().backward()
    return {name: parameter.grad for name, parameter in module.named_parameters() if parameter.grad is not None}


def test_text_is_executed_without_the_engine(upstream: Upstream) -> None:
    before = set(sys.modules)
    module = made(upstream)
    assert module(torch.ones(1, 5, 8)).requires_grad  # no_grad is left out
    assert not [name for name in set(sys.modules) - before if name.partition(".")[0] in ("vllm", "vllm_omni")]
    with pytest.raises(NotImplementedError, match=r"vllm\._custom_ops\.scaled_mm has no counterpart"):
        module.kernel(torch.ones(1))  # type: ignore[operator]


def test_other_text_is_refused_in_a_line(upstream: Upstream, tmp_path: Path) -> None:
    (tmp_path / PLACE / "sizes.py").write_text("WIDTH = 16\n")
    other = Upstream("9.9.9", {**upstream.files, f"{PLACE}/sizes.py": "0" * 64})
    with pytest.raises(ImportError, match="is not the text of vllm-omni 9.9.9 .*omni-scaffold verify") as refused:
        other.load("vllm_omni.diffusion.models.small.sizes")
    assert "\n" not in str(refused.value)
    with pytest.raises(ImportError, match="not among the files"):
        upstream.load("vllm_omni.diffusion.models.other")
    (tmp_path / PLACE / "sizes.py").unlink()
    with pytest.raises(ImportError, match=r"sizes\.py is not installed: install vllm-omni 9\.9\.9"):
        other.load("vllm_omni.diffusion.models.small.sizes")


def test_parts_have_the_released_names_and_compute_the_same(upstream: Upstream) -> None:
    whole, apart = made(upstream), take_apart(made(upstream), FUSED)
    x = torch.randn(1, 5, 8)
    assert torch.allclose(whole(x.clone()), apart(x.clone()), atol=1e-6)  # products of other sizes round otherwise
    names = {name for name, _ in apart.named_parameters()}
    assert {f"layers.0.{part}.weight" for part in ("to_q", "to_k", "to_v", "gate", "up", "out", "down")} <= names
    assert not any("to_qkv" in name or "gate_up" in name for name in names)
    with pytest.raises(ValueError, match="gate_up of Layer has 2 parts, not gate"):
        take_apart(made(upstream), (("Layer", "gate_up", ("gate",)),))


def test_every_lora_has_a_gradient_also_where_a_layer_returns_a_pair(upstream: Upstream) -> None:
    module = take_apart(made(upstream), FUSED)
    x = torch.randn(1, 5, 8)
    expected = module(x.clone())
    config = LoraConfig(r=2, target_modules=["to_q", "to_k", "to_v", "out", "gate", "up", "down"])
    config._register_custom_module({Linear: LoraOfPair})
    inject_adapter_in_model(config, module)
    assert torch.equal(module(x.clone()), expected)
    found = gradients(module)
    assert sum(".lora_B." in name and bool(gradient.any()) for name, gradient in found.items()) == 14


def test_layers_are_computed_again(upstream: Upstream) -> None:
    module = take_apart(made(upstream), FUSED)
    expected = gradients(module)
    layers = CheckpointedLayer.of(module, ["Layer"])
    ExactArguments.of(module, ["Layer"])
    assert len(layers) == 2
    calls = []
    module.layers[0].attention.register_forward_hook(lambda *_: calls.append(1))  # type: ignore[index, union-attr]
    for layer in layers:
        layer.gradient_checkpointing = True
    found = gradients(module)
    assert len(calls) == 2
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)
    assert [type(layer).__name__ for layer in layers] == ["Layer", "Layer"]  # FSDP wraps by name


def test_another_process_finds_what_was_pickled(upstream: Upstream, tmp_path: Path) -> None:
    own = f"""
        from flow_grpo_runtime.upstream import Upstream, in_context

        UPSTREAM = Upstream("9.9.9", {upstream.files!r})
        Layer = UPSTREAM("vllm_omni.diffusion.models.small.model:Layer")
        Model = in_context(UPSTREAM("vllm_omni.diffusion.models.small.model:Model"), {{"ref": "ref"}})
    """
    (tmp_path / "own_denoiser.py").write_text(textwrap.dedent(own))
    write = """
        import pickle, sys, torch, own_denoiser
        model = own_denoiser.Model(2)
        torch.save(model, "model.pt")
        pickle.dump((own_denoiser.Layer, own_denoiser.Model), open("classes.pickle", "wb"))
    """
    read = """
        import pickle, torch
        layer, model = pickle.load(open("classes.pickle", "rb"))
        loaded = torch.load("model.pt", weights_only=False)
        assert type(loaded) is model and type(loaded.layers[0]) is layer, (type(loaded), layer)
        print(layer.__name__, tuple(loaded(torch.ones(1, 5, 8)).shape))
    """
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    for program in (write, read):
        command = [sys.executable, "-c", textwrap.dedent(program)]
        done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
    assert done.stdout == "Layer (1, 5, 8)\n"


def test_module_can_be_pickled(upstream: Upstream) -> None:
    module = take_apart(made(upstream), FUSED)
    CheckpointedLayer.of(module, ["Layer"])
    ExactArguments.of(module, ["Layer"])
    x = torch.randn(1, 5, 8)
    again = pickle.loads(pickle.dumps(module))
    assert torch.equal(again(x.clone()), module(x.clone()))
    assert type(again.layers[0]) is type(module.layers[0])  # type: ignore[index]


def test_context_of_the_engine_is_none(upstream: Upstream) -> None:
    with pytest.raises(NotImplementedError, match="ref_latent of the engine's context is not known"):
        CONTEXT.ref_latent  # noqa: B018
