"""Rules as a rendered training module applies them: loading, saving, sending, and refusing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scaffold.remap import KeyMap, Rule
from scaffold.remap.command.rendered import differing, rendered_rules
from scaffold.render import render
from scaffold.spec import IntegrationSpec

torch = pytest.importorskip("torch")
from safetensors.torch import load_file, save_file  # noqa: E402

SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "max_latent_size": 8,
}
LAYER, THERE = "net.blocks.{n}.", "layers.{n}."
RULES = (
    *(
        Rule(
            f"{LAYER}attn.qkv{path}.",
            None,
            "split",
            parts=tuple(f"{THERE}self_attn.{side}_proj{path}." for side in "qkv"),
        )
        for path in ("", "_moe_gen")
    ),
    *(
        Rule(
            f"{LAYER}mlp{path}.gate_up.weight",
            None,
            "split",
            parts=(f"{THERE}mlp{path}.gate_proj.weight", f"{THERE}mlp{path}.up_proj.weight"),
        )
        for path in ("", "_moe_gen")
    ),
    Rule(None, "embed_tokens.weight", "join", parts=("net.words.first", "net.words.rest"), sizes=(40, 24)),
    Rule(None, "vae2llm.weight", "join", parts=("net.in_left.weight", "net.in_right.weight"), axis=1),
    Rule(f"{LAYER}attn.rotary.", None, "drop", "computed"),
    Rule('net.it\'s "{{%odd%}}".', None, "drop", 'not "needed"'),
    Rule(f"{LAYER}attn.", f"{THERE}self_attn."),
    Rule(f"{LAYER}", f"{THERE}"),
    Rule("vae2llm.", "vae2llm."),
    Rule("llm2vae.", "llm2vae."),
    Rule("time_embedder.", "time_embedder."),
    Rule("latent_pos_embed.", "latent_pos_embed."),
    Rule("net.", ""),
)


def altered(spec: IntegrationSpec, rules: tuple[Rule, ...]) -> IntegrationSpec:
    sections = copy.deepcopy(dict(spec.sections))
    sections["checkpoint"] = {**sections["checkpoint"], "rules": KeyMap(rules).to_data()}
    return replace(spec, sections=sections).as_written()


@pytest.fixture
def module(reference_spec: IntegrationSpec, training_module: Callable[..., Any]) -> Any:
    return training_module(altered(reference_spec, RULES))


@pytest.fixture
def model(module: Any) -> Any:
    model = module.BagelForTraining(module.BagelTrainingConfig(**SIZES))
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator))
    return model


def fused(model: Any) -> dict[str, Any]:
    """Return the state as such a checkpoint has it, put together by hand."""
    state = dict(model.state_dict())
    there: dict[str, Any] = {}
    for layer in range(2):
        at, to = f"layers.{layer}.", f"net.blocks.{layer}."
        for path in ("", "_moe_gen"):
            for kind in ("weight", "bias"):
                parts = [state.pop(f"{at}self_attn.{side}_proj{path}.{kind}") for side in "qkv"]
                there[f"{to}attn.qkv{path}.{kind}"] = torch.cat(parts)
            parts = [state.pop(f"{at}mlp{path}.{side}_proj.weight") for side in ("gate", "up")]
            there[f"{to}mlp{path}.gate_up.weight"] = torch.cat(parts)
    words, left = state.pop("embed_tokens.weight"), state.pop("vae2llm.weight")
    there |= {"net.words.first": words[:40].clone(), "net.words.rest": words[40:].clone()}
    there |= {"net.in_left.weight": left[:, :32].clone(), "net.in_right.weight": left[:, 32:].clone()}
    for name, tensor in state.items():
        if name.startswith("layers."):
            there["net.blocks." + name.removeprefix("layers.").replace("self_attn", "attn")] = tensor
        elif name.startswith("norm"):
            there["net." + name] = tensor
        else:
            there[name] = tensor
    return there


def write(folder: Path, model: Any, tensors: dict[str, Any]) -> str:
    model.config.save_pretrained(str(folder))
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, str(folder / "ema.safetensors"))
    return str(folder)


def test_a_fused_checkpoint_loads_and_is_saved_as_it_was(module: Any, model: Any, tmp_path: Path) -> None:
    there = fused(model)
    unused = {"net.blocks.1.attn.rotary.inv_freq": torch.zeros(3), 'net.it\'s "{%odd%}".w': torch.zeros(1)}
    loaded = module.BagelForTraining.from_pretrained(
        write(tmp_path / "a", model, there | unused), torch_dtype=torch.float32
    )
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name
    (tmp_path / "b").mkdir()
    loaded.save_pretrained(str(tmp_path / "b"))
    saved = load_file(tmp_path / "b" / "ema.safetensors")
    assert saved.keys() == there.keys()
    assert all(torch.equal(saved[name], tensor) for name, tensor in there.items())


def test_parts_are_views_of_the_mapped_tensor(module: Any, model: Any, tmp_path: Path) -> None:
    state = module.open_checkpoint(write(tmp_path, model, fused(model)))
    parts = [state[f"layers.0.self_attn.{side}_proj.weight"] for side in "qkv"]
    assert len({part.untyped_storage().data_ptr() for part in parts}) == 1
    assert [part.shape[0] for part in parts] == [32, 16, 16]


def test_parts_that_come_apart_are_sent_together(module: Any, model: Any) -> None:
    there = fused(model)
    state = dict(reversed(model.state_dict().items()))
    sent = [(f"transformer.{name}", tensor) for name, tensor in state.items()]
    sent.insert(3, ("net.own.name", torch.zeros(1)))

    def training_name(name: str) -> str | None:
        return name.removeprefix("transformer.") if name.startswith("transformer.") else None

    arrived = dict(module.checkpoint_tensors(iter(sent), training_name))
    assert arrived.pop("net.own.name").shape == (1,)
    assert arrived.keys() == there.keys()
    assert all(torch.equal(arrived[name], tensor) for name, tensor in there.items())
    lost = [(name, tensor) for name, tensor in sent if "layers.1.self_attn.k_proj.weight" not in name]
    with pytest.raises(ValueError, match=r"net\.blocks\.1\.attn\.qkv\.weight.* came in part only"):
        list(module.checkpoint_tensors(iter(lost), training_name))
    for name in ("layers.0.mlp.up_proj.weight", "embed_tokens.weight"):
        with pytest.raises(KeyError, match="use checkpoint_tensors"):
            module.to_checkpoint_key(name)
    assert module.to_checkpoint_key("layers.1.self_attn.q_norm.weight") == "net.blocks.1.attn.q_norm.weight"


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("net.blocks.1.attn.qkv.weight", None, r"missing: net\.blocks\.1\.attn\.qkv\.weight"),
        ("net.blocks.1.attn.qkv.weight", lambda t: t[1:], r"net\.blocks\.1\.attn\.qkv\.weight.* cannot be taken apart"),
        ("net.words.rest", None, r"'embed_tokens\.weight' is joined from 2 tensors; 'net\.words\.rest' is missing"),
        ("net.words.rest", lambda t: t[1:], r"'embed_tokens\.weight' are \(40, 23\) long"),
        ("net.nobody", lambda _: torch.zeros(1), r"nobody|unexpected"),
    ],
)
def test_what_does_not_fit_is_named(
    name: str, change: Callable[..., Any] | None, message: str, module: Any, model: Any, tmp_path: Path
) -> None:
    there = fused(model)
    old = there.pop(name, None)
    if change is not None:
        there[name] = change(old)
    with pytest.raises((ValueError, KeyError), match=message):
        module.BagelForTraining.from_pretrained(write(tmp_path, model, there), torch_dtype=torch.float32)


@pytest.mark.parametrize("rules", [RULES, None], ids=["patterns", "prefixes"])
def test_the_rendered_table_is_the_specs(rules: tuple[Rule, ...] | None, reference_spec: IntegrationSpec) -> None:
    import ast

    spec = altered(reference_spec, rules) if rules else reference_spec
    names = spec.sections["names"]
    files = render(spec)
    tree = ast.parse(files[f"verl_omni/pipelines/{names['package']}/{names['model']}_model.py"].content)
    read = rendered_rules(tree)
    wanted = KeyMap.from_data(spec.value("checkpoint.rules")).rules
    assert read is not None
    assert differing(read.rules, wanted) == ([], [])
    assert differing(read.rules[1:], wanted) == ([], [rule for rule in wanted if rule.label == read.rules[0].label])
    assert differing(read.rules, wanted[1:]) == ([rule for rule in read.rules if rule.label == wanted[0].label], [])
    assert all(read.starts[read.table_of(rule)] < read.lines[rule.label] for rule in read.rules)
