"""The building blocks, composed in several ways, against an independent computation in float64."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from installed import in_one_worker

torch = pytest.importorskip("torch")
pytestmark = in_one_worker
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from blocks import oracle  # noqa: E402

VARIANTS: dict[str, dict[str, Any]] = {
    "reference": {},
    "no query and key norm": {"qk_norm": False},
    "biasless projections": {"qkv_bias": False},
    "biased output and feed-forward": {"output_bias": True, "mlp_bias": True},
    "one set of weights": {"experts": None},
    "gelu feed-forward": {"mlp": "gelu"},
    "no markers": {"sequence": ["text", "latents"]},
    "one marker": {"sequence": ["text", "start_of_image", "latents"]},
    "sequential positions": {"image_position": "sequential"},
    "sequential positions, no markers": {"image_position": "sequential", "sequence": ["text", "latents"]},
    "text attends both ways": {"text_attention": "full"},
    "scaled timestep": {"timestep_scale": 10.0, "timestep_max_period": 5000.0, "timestep_order": ["sin", "cos"]},
}
SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "max_latent_size": 8,
}
LENGTHS = (5, 2, 0)


def variant(spec, changes):
    """Return the spec with another architecture."""
    sections = copy.deepcopy(dict(spec.sections))
    sections["architecture"] = {**sections["architecture"], **changes}
    return replace(spec, sections=sections)


def build(module, architecture):
    """Return a tiny model with random weights, norms around one."""
    markers = [part for part in architecture["sequence"] if part not in ("text", "latents")]
    marker_ids = {f"{marker}_id": 3 + i for i, marker in enumerate(markers)}
    model = module.BagelForTraining(module.BagelTrainingConfig(**SIZES, **marker_ids))
    generator = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.data.copy_(1 + 0.2 * noise if "norm" in name else 0.3 * noise)
    return model


def batch(model, rows=3, columns=2):
    """Return inputs of three samples with text of unequal length, one without any."""
    generator = torch.Generator().manual_seed(1)
    count = len(LENGTHS)
    grid = (torch.arange(rows)[:, None] * SIZES["max_latent_size"] + torch.arange(columns)).flatten()
    ids = torch.randint(8, 64, (count, max(LENGTHS)), generator=generator)
    return {
        "hidden_states": torch.randn(count, rows * columns, model.config.patch_latent_dim, generator=generator),
        "timestep": torch.tensor([1.0, 0.6, 0.25]),
        "text_token_ids": ids,
        "text_attention_mask": torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None],
        "latent_pos_ids": grid.expand(count, -1),
    }


@pytest.mark.parametrize("name", VARIANTS)
def test_a_ragged_batch_is_what_each_sample_gives_in_float64(name, reference_spec, training_module):
    spec = variant(reference_spec, VARIANTS[name])
    architecture = {"experts": None, **spec.sections["architecture"]}
    model = build(training_module(spec), architecture)
    inputs = batch(model)
    (velocity,) = model(**inputs)
    for i, length in enumerate(LENGTHS):
        expected = oracle.velocity(
            model.state_dict(),
            architecture,
            model.config,
            inputs["hidden_states"][i],
            float(inputs["timestep"][i]),
            inputs["text_token_ids"][i, :length].tolist(),
            inputs["latent_pos_ids"][i],
        )
        assert (velocity[i].double() - expected).norm() < 2e-6 * expected.norm(), (name, i)


def test_the_unconditional_branch_is_a_sample_without_text(reference_spec, training_module):
    model = build(training_module(reference_spec), reference_spec.sections["architecture"])
    inputs = batch(model)
    without = {**inputs, "text_token_ids": None, "text_attention_mask": None}
    torch.testing.assert_close(model(**without)[0][2], model(**inputs)[0][2], rtol=1e-5, atol=1e-5)


def test_timesteps_and_their_features_are_the_same_input(reference_spec, training_module):
    module = training_module(reference_spec)
    model = build(module, reference_spec.sections["architecture"])
    inputs = batch(model)
    features = module.timestep_features(inputs["timestep"])
    torch.testing.assert_close(model(**{**inputs, "timestep": features}), model(**inputs), rtol=0, atol=0)


def test_float32_stays_float32_and_bf16_stays_bf16(reference_spec, training_module):
    model = build(training_module(reference_spec), reference_spec.sections["architecture"])
    inputs = batch(model)
    for dtype in (torch.float32, torch.bfloat16):
        seen: set[torch.dtype] = set()

        class Watch(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                if function in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default):
                    seen.add(args[-1].dtype)  # noqa: B023
                return function(*args, **(kwargs or {}))

        with Watch():
            (velocity,) = model.to(dtype)(**inputs)
        assert velocity.dtype == dtype
        assert seen == {dtype}


class NoSynchronisation(TorchDispatchMode):
    """Fails on every operation that makes the host wait for the device or takes data-dependent shapes."""

    FORBIDDEN = (
        torch.ops.aten._local_scalar_dense.default,
        torch.ops.aten.nonzero.default,
        torch.ops.aten.masked_select.default,
        torch.ops.aten.item.default,
    )

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        """Pass on what is allowed."""
        assert function not in self.FORBIDDEN, function
        if function in (torch.ops.aten.index.Tensor, torch.ops.aten.index_put.default):
            assert all(i is None or i.dtype != torch.bool for i in args[1]), "boolean indexing"
        return function(*args, **(kwargs or {}))


def test_forward_and_backward_never_wait_for_the_device(reference_spec, training_module):
    model = build(training_module(reference_spec), reference_spec.sections["architecture"])
    with NoSynchronisation():
        model(**batch(model))[0].square().mean().backward()


@pytest.mark.parametrize("layers", [None, 1, 0])
def test_gradient_checkpointing_changes_no_gradient_and_is_idle_without_grad(layers, reference_spec, training_module):
    module = training_module(reference_spec)
    model = build(module, reference_spec.sections["architecture"])
    inputs = batch(model)

    def gradients():
        model.zero_grad()
        model(**inputs)[0].square().mean().backward()
        return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    plain = gradients()
    recomputed = []
    model.enable_gradient_checkpointing(
        lambda function, *args, **kwargs: recomputed.append(function)
        or torch.utils.checkpoint.checkpoint(function, *args, **kwargs)
    )
    model.checkpointed_layers = layers
    checkpointed = gradients()
    # What is left alone recomputes the middle of its two feed-forward blocks and nothing else.
    whole = SIZES["num_hidden_layers"] if layers is None else layers
    assert [function in list(model.layers) for function in recomputed] == [True] * whole + [False] * 2 * (2 - whole)
    assert plain.keys() == checkpointed.keys()
    for name in plain:
        torch.testing.assert_close(checkpointed[name], plain[name], rtol=0, atol=0)
    calls = len(recomputed)
    with torch.no_grad():
        model(**inputs)
    assert len(recomputed) == calls


def with_lora(model, reference_spec):
    """Freeze the weights and train LoRA on the spec's targets."""
    from peft import LoraConfig

    targets = list(reference_spec.sections["lora"]["targets"])
    model.requires_grad_(False).add_adapter(LoraConfig(r=3, lora_alpha=7, target_modules=targets, lora_dropout=0.0))
    return model


def test_recomputing_a_layer_leaves_its_last_product_out(reference_spec, training_module):
    model = with_lora(build(training_module(reference_spec), reference_spec.sections["architecture"]), reference_spec)
    model.enable_gradient_checkpointing()
    products = dict.fromkeys(("up_proj", "down_proj"), 0)

    class Count(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            for name in products:
                weight = getattr(model.layers[0].mlp_moe_gen, name).base_layer.weight
                products[name] += any(torch.is_tensor(a) and a.data_ptr() == weight.data_ptr() for a in args) and (
                    function in (torch.ops.aten.mm.default, torch.ops.aten.addmm_.default)
                )
            return function(*args, **(kwargs or {}))

    with Count():
        model(**batch(model))[0].square().mean().backward()
    assert products == {"up_proj": 3, "down_proj": 2}, "forward, recomputation and gradient; forward and gradient"


@pytest.mark.parametrize("rank_dtype", [torch.float32, torch.float64])
def test_lora_is_peft_arithmetic(rank_dtype, reference_spec, training_module):
    from peft import LoraConfig

    model = build(training_module(reference_spec), reference_spec.sections["architecture"])
    inputs = batch(model)
    base = model(**inputs)[0].detach()
    merged = copy.deepcopy(model)
    targets = list(reference_spec.sections["lora"]["targets"])
    model.add_adapter(LoraConfig(r=3, lora_alpha=7, target_modules=targets, lora_dropout=0.0))
    wrapped = [name for name, child in model.named_modules() if hasattr(child, "lora_A")]
    assert len(wrapped) == len(targets) * SIZES["num_hidden_layers"]
    torch.testing.assert_close(model(**inputs)[0], base, rtol=0, atol=0)
    for name in wrapped:
        layer = model.get_submodule(name)
        layer.lora_B["default"].weight.data.normal_(0, 0.1, generator=torch.Generator().manual_seed(4))
        delta = layer.lora_B["default"].weight @ layer.lora_A["default"].weight * (7 / 3)
        merged.get_submodule(name).weight.data += delta.detach()
        layer.lora_A.to(rank_dtype)
        layer.lora_B.to(rank_dtype)
    expected = merged(**inputs)[0]
    assert (model(**inputs)[0] - expected).norm() < 1e-5 * expected.norm()
    assert (expected - base).norm() > 1e-2 * base.norm()
    model(**inputs)[0].square().mean().backward()
    for name in wrapped:
        assert model.get_submodule(name).lora_B["default"].weight.grad.abs().max() > 0, name
    model.disable_adapters()
    torch.testing.assert_close(model(**inputs)[0], base, rtol=0, atol=0)
