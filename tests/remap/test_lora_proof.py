"""LoRA targets, followed to the layers that the engine's LoRA manager wraps, or to what a package's hook does."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engine_tree import ADAPTER, MANAGER, small_upstream

from scaffold.remap import KeyMap, Rule
from scaffold.remap.engine import LoraProof, prove_lora

MAP = KeyMap((Rule("model.", ""),))
KINDS = ("attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.o_proj", "gate_proj", "up_proj", "down_proj")
PARAMETERS = {f"layers.{layer}.{name}.weight": (4, 4) for layer in range(2) for name in KINDS}
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
KEPT = "self.stacked_params_mapping = stacked"
FOLD = """
    def map_lora_update_to_engine(self, tensors, peft_config):
        scale = peft_config["lora_alpha"] / peft_config["r"]
        modules = sorted({n.removesuffix(".lora_A.weight") for n in tensors if n.endswith(".lora_A.weight")})

        def folded():
            for module in modules:
                down, up = tensors[f"{module}.lora_A.weight"], tensors[f"{module}.lora_B.weight"]
                yield f"{module}.weight", self.base(module) + scale * (up @ down)

        self.load_weights(folded())
        return {}, {**peft_config, "target_modules": []}
"""
RENAME = """
    def map_lora_update_to_engine(self, tensors, peft_config):
        renamed = {n.replace("o_proj", "out"): t for n, t in tensors.items()}
        return renamed, {**peft_config, "target_modules": ["out"]}
"""


@pytest.fixture
def prove(tmp_path: Path, headers: Callable[..., Any]) -> Callable[..., LoraProof]:
    """Return a function that proves LoRA on a small pipeline with lines of its source replaced."""

    def run(
        targets: list[str] = TARGETS, hook: str | None = None, sync: Any = None, lora_hook: Any = None, **lines: Any
    ) -> LoraProof:
        keys = headers({f"model.{name}": shape for name, shape in PARAMETERS.items()})
        package = None
        if hook is not None:
            package = {"rollout": ast.parse(ADAPTER.format(more=hook)), "model": ast.parse('KEYS = ("model.",)')}
        source = small_upstream(tmp_path, **lines)
        return prove_lora(
            source,
            "small",
            targets,
            PARAMETERS,
            key_map=MAP,
            headers=keys,
            package=package,
            sync=sync,
            lora_hook=lora_hook,
        )

    return run


def kinds(proof: LoraProof) -> list[str]:
    return [offender.name for offender in proof.offenders]


@pytest.mark.parametrize(
    "lines",
    [
        {"keep": KEPT},
        {"table": 'stacked_params_mapping = [("qkv_proj", "q_proj", "q"), ("qkv_proj", "k_proj", "k"), '
         '("qkv_proj", "v_proj", "v"), ("gate_up_proj", "gate_proj", 0), ("gate_up_proj", "up_proj", 1)]'},
    ],
    ids=["stored by load_weights", "attribute of the class"],
)  # fmt: skip
def test_a_packing_table_that_the_manager_sees_binds_every_target(
    prove: Callable[..., LoraProof], lines: dict[str, str]
) -> None:
    proof = prove(**lines)
    assert proof.holds is True, proof.reason
    assert len(proof.modules) == 14
    assert all(proof.modules.values())


def test_targets_that_the_engine_packs_under_another_name_are_listed_by_kind(
    prove: Callable[..., LoraProof],
) -> None:
    proof = prove()
    assert proof.holds is False
    assert kinds(proof) == ["q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"]
    assert "5 of 7 LoRA targets, 10 of 14 modules" in proof.reason
    assert "2 of 2 modules" in proof.offenders[0].message
    assert "'transformer.layers.0.attn.qkv_proj.weight'" in proof.offenders[0].message
    assert "packed from 3 layers" in proof.offenders[0].message
    assert "pipeline_small.py:" in proof.offenders[0].message
    assert sorted(m for m, bound in proof.modules.items() if bound) == [
        f"layers.{n}.{name}" for n in range(2) for name in ("attn.o_proj", "down_proj")
    ]


def test_a_table_with_a_part_missing_packs_nothing(prove: Callable[..., LoraProof]) -> None:
    table = 'stacked_params_mapping = [("qkv_proj", "q_proj", "q"), ("qkv_proj", "k_proj", "k")]'
    assert kinds(prove(["q_proj", "o_proj"], table=table)) == ["q_proj"]


def test_a_subclass_of_a_layer_is_not_wrapped(prove: Callable[..., LoraProof]) -> None:
    from engine_tree import LAYERS

    layers = LAYERS.replace(
        "class Attention(nn.Module):", "class Own(RowParallelLinear):\n    pass\n\n\nclass Attention(nn.Module):"
    ).replace("self.o_proj = RowParallelLinear", "self.o_proj = Own")
    proof = prove(["o_proj", "down_proj"], layers=layers)
    assert kinds(proof) == ["o_proj"]
    assert "wraps RowParallelLinear itself only" in proof.offenders[0].message


def test_only_components_that_the_manager_walks_count(prove: Callable[..., LoraProof]) -> None:
    proof = prove(["o_proj"], component="denoiser")
    assert proof.holds is False
    assert "none of the 2 modules" in proof.reason
    # The name that the actor uses is tried with and without the component: another component's never matches.
    assert prove(["o_proj"], component="denoiser", pipeline='_lora_components = ["denoiser"]').holds is False
    assert prove(["o_proj"], component="unet").holds is False
    assert prove(["o_proj"], component="transformer").holds is True


def test_a_target_that_training_does_not_have_is_refused(prove: Callable[..., LoraProof]) -> None:
    proof = prove(["o_proj", "nobody"])
    assert proof.holds is False
    assert kinds(proof) == ["nobody"]


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ({"manager": "class Other:\n    pass\n"}, "DiffusionLoRAManager"),
        ({"table": "stacked_params_mapping = table_of(1)"}, "stacked_params_mapping of Denoiser"),
        ({"pipeline": "_lora_components = components()"}, "_lora_components of SmallPipeline"),
        ({"first": "if weight.sum():\n                continue"}, "a tensor's values"),
    ],
)
def test_what_the_text_does_not_settle_is_none(
    prove: Callable[..., LoraProof], lines: dict[str, str], reason: str
) -> None:
    proof = prove(**lines)
    assert proof.holds is None
    assert not proof.offenders
    assert reason in proof.reason


def test_a_manager_that_lets_the_pipeline_rename_is_left_open(prove: Callable[..., LoraProof]) -> None:
    manager = MANAGER.replace(
        "return lora_model.get_lora(name)",
        'return getattr(self.pipeline, "_aliases", None) or lora_model.get_lora(name)',
    )
    assert prove(["q_proj"], manager=manager).holds is False
    assert prove(["q_proj"], manager=manager, pipeline="_aliases = None").holds is None


def test_a_hook_that_folds_every_update_holds(prove: Callable[..., LoraProof]) -> None:
    proof = prove(hook=FOLD)
    assert proof.holds is True, proof.reason
    assert "hook" in proof.reason


def test_a_hook_that_folds_some_is_refused_for_the_others(prove: Callable[..., LoraProof]) -> None:
    some = FOLD.replace("for module in modules:", 'for module in [m for m in modules if "gate" not in m]:')
    proof = prove(hook=some)
    assert proof.holds is False
    assert kinds(proof) == ["gate_proj"]
    assert "neither folds it" in proof.offenders[0].message


def test_a_hook_that_folds_into_the_wrong_weight_is_refused(prove: Callable[..., LoraProof]) -> None:
    wrong = FOLD.replace(
        'yield f"{module}.weight"', """yield f"{module.replace('down_proj', 'attn.o_proj')}.weight\""""
    )
    proof = prove(hook=wrong)
    assert proof.holds is False
    assert kinds(proof) == ["down_proj"]
    assert "o_proj" in proof.offenders[0].message


def test_a_hook_that_renames_holds_where_the_new_names_bind(prove: Callable[..., LoraProof]) -> None:
    from engine_tree import LAYERS

    renamed = LAYERS.replace("self.o_proj = Row", "self.out = Row").replace(
        "            {first}", '            name = name.replace("o_proj", "out")'
    )
    assert prove(["o_proj"], layers=renamed).holds is False
    assert prove(["o_proj"], layers=renamed, hook=RENAME).holds is True
    assert prove(["o_proj", "down_proj"], layers=renamed, hook=RENAME).holds is False


def test_a_hook_that_the_text_does_not_settle_is_none(prove: Callable[..., LoraProof]) -> None:
    assert prove(["o_proj"], hook=RENAME.replace("tensors.items()", "self.elsewhere(tensors)")).holds is None


def test_a_hook_that_nobody_calls_counts_for_nothing(prove: Callable[..., LoraProof]) -> None:
    assert prove(hook=FOLD, lora_hook=True).holds is True
    assert prove(hook=FOLD, lora_hook=False).holds is False
    worker = "class Worker:\n    def add_lora(self, r):\n        self.pipeline.map_lora_update_to_engine(r.a, r.b)\n"
    assert prove(hook=f"{FOLD}\n\n{worker}", lora_hook=False).holds is True


def test_a_package_without_a_hook_is_judged_by_the_manager(prove: Callable[..., LoraProof]) -> None:
    assert kinds(prove(hook="")) == ["q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"]


def test_what_a_spec_says_about_the_adapter(prove: Callable[..., LoraProof]) -> None:
    assert prove(sync="fold").holds is True
    assert prove(sync="adapter").holds is False
    assert prove(sync="none").holds is None


def test_without_a_checkpoint_what_does_not_bind_is_left_open(tmp_path: Path) -> None:
    source = small_upstream(tmp_path)
    assert prove_lora(source, "small", ["q_proj"], PARAMETERS).holds is None
    assert prove_lora(source, "small", ["o_proj"], PARAMETERS).holds is True
