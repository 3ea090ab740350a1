"""The engine side of a released checkpoint on every vllm-omni that a contract profile names, and a newer one."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from scaffold.checkpoint import CheckpointFile, CheckpointHeaders, TensorHeader
from scaffold.remap import KeyMap, Mapped, Rule
from scaffold.remap.engine import prove_engine, prove_lora
from scaffold.upstream import locate

pytestmark = pytest.mark.upstream

FURTHER = pytest.param("0.24.0", marks=pytest.mark.table)
REFERENCE = Path(__file__).resolve().parents[2] / "reference_bagel/verl_omni/pipelines/bagel_flow_grpo"
MAP = KeyMap(
    (
        *(Rule(f"{name}.", f"{name}.") for name in ("latent_pos_embed", "time_embedder", "llm2vae", "vae2llm")),
        Rule("language_model.model.", ""),
        *(
            Rule(name, None, "drop", "not used")
            for name in ("connector.", "language_model.lm_head.", "vit_model.", "vit_pos_embed.")
        ),
    )
)
TARGETS = [f"{side}_proj_moe_gen" for side in "qkvo"] + [f"mlp_moe_gen.{side}_proj" for side in ("gate", "up", "down")]
# Where the second expert's weights are, by release.
PLACES = {
    "0.22.0": "self_attn.qkv_proj_moe_gen.weight",
    "0.24.0": "self_attn.qkv_proj.gen_exp.weight",
    "0.27.0rc1": "self_attn.qkv_proj.gen_exp.weight",
    "0.30.0": "self_attn.qkv_proj.gen_exp.weight",
}
# What the hand-written adapter of verl-omni main does with the actor's names.
HAND_WRITTEN = """
from vllm_omni.diffusion.models.bagel.pipeline_bagel import BagelPipeline


class Rollout(BagelPipeline):
    def load_weights(self, weights):
        actor, other = [], []
        for name, tensor in weights:
            if name.startswith("transformer."):
                actor.append((f"model.{name[12:]}", tensor))
            else:
                other.append((name, tensor))
        loaded = super().load_weights(other) if other else set()
        return loaded | self.language_model.load_weights(actor)
"""


@pytest.fixture(scope="module")
def shapes(real: CheckpointHeaders) -> dict[str, tuple[int, ...]]:
    """Return the parameters of training: what the map makes of the checkpoint."""
    mapped = {name: MAP.apply(name) for name in real.tensors}
    return {found.target: real.tensors[name].shape for name, found in mapped.items() if isinstance(found, Mapped)}


@pytest.fixture(scope="module")
def reference() -> dict[str, ast.Module]:
    """Return the rendered package's modules."""
    return {path.stem: ast.parse(path.read_text()) for path in REFERENCE.glob("*.py")}


@pytest.mark.parametrize("version", [FURTHER if version == "0.24.0" else version for version in PLACES])
def test_weights_of_training_reach_their_parameters(
    real: CheckpointHeaders, shapes: dict[str, tuple[int, ...]], reference: dict[str, ast.Module], version: str
) -> None:
    proof = prove_engine(locate(version), "bagel", MAP, real, shapes, package=reference)
    assert proof.holds is True, proof.reason
    assert len(proof.landings) == len(shapes) == 796
    landing = proof.landings["layers.27.self_attn.k_proj_moe_gen.weight"][0]
    assert landing.place == f"language_model.model.layers.27.{PLACES[version]}"
    assert landing.shard == "k"


@pytest.mark.parametrize("version", [FURTHER, "0.30.0"])
def test_the_hand_written_adapter_loses_what_lies_outside_the_language_model(
    real: CheckpointHeaders, shapes: dict[str, tuple[int, ...]], version: str
) -> None:
    package = {"rollout": ast.parse(HAND_WRITTEN)}
    proof = prove_engine(locate(version), "bagel", MAP, real, shapes, package=package)
    assert proof.holds is False
    assert sorted(offender.name for offender in proof.offenders) == [
        "transformer.latent_pos_embed.pos_embed",
        *(f"transformer.{name}.{side}" for name in ("llm2vae", "time_embedder.mlp.0", "time_embedder.mlp.2", "vae2llm")
          for side in ("bias", "weight")),
    ]  # fmt: skip


@pytest.mark.parametrize("version", [FURTHER if version == "0.24.0" else version for version in PLACES])
def test_lora_of_a_package_that_does_nothing_about_it(
    real: CheckpointHeaders, shapes: dict[str, tuple[int, ...]], version: str
) -> None:
    package = {"rollout": ast.parse(HAND_WRITTEN)}
    proof = prove_lora(locate(version), "bagel", TARGETS, shapes, key_map=MAP, headers=real, package=package)
    bound = {
        module.partition(".self_attn.")[2] or module.split(".", 2)[2] for module, ok in proof.modules.items() if ok
    }
    if version == "0.22.0":
        assert proof.holds is True, proof.reason
        assert bound == set(TARGETS)
        return
    assert proof.holds is False
    assert [offender.name for offender in proof.offenders] == TARGETS[:-1]
    assert "6 of 7 LoRA targets, 168 of 196 modules" in proof.reason
    assert bound == {"mlp_moe_gen.down_proj"}


@pytest.mark.parametrize("version", [FURTHER if version == "0.24.0" else version for version in PLACES])
def test_lora_of_the_rendered_package_takes_effect(
    real: CheckpointHeaders, shapes: dict[str, tuple[int, ...]], reference: dict[str, ast.Module], version: str
) -> None:
    proof = prove_lora(locate(version), "bagel", TARGETS, shapes, key_map=MAP, headers=real, package=reference)
    assert proof.holds is True, proof.reason
    assert len(proof.modules) == 196


@pytest.mark.parametrize(
    "pipeline", ["sensenova_u1", "hidream_o1_image", "lance", "hunyuan_image3", "qwen_image", "wan2_2", "sd3", "flux"]
)
def test_other_pipelines_end_with_an_answer_and_a_reason(pipeline: str) -> None:
    from scaffold.remap.engine.loading import Engine
    from scaffold.remap.engine.naming import slot_items

    source = locate("0.30.0")
    engine = Engine(source, pipeline)
    names = [name for name, _ in slot_items(engine.tree, engine.counts, deduplicate=True)][:120]
    assert names
    shapes: dict[str, Any] = dict.fromkeys(names, (2, 2))
    headers = CheckpointHeaders(
        "test",
        (CheckpointFile("w.safetensors", len(names), 8 * len(names)),),
        tuple(TensorHeader(name, "BF16", (2, 2), "w.safetensors") for name in names),
    )
    identity = KeyMap((Rule("", ""),))
    proof = prove_engine(source, pipeline, identity, headers, shapes, prefix="")
    assert proof.holds in (True, False, None)
    assert proof.reason
    assert bool(proof.offenders) == (proof.holds is False)
    target = next(name for name in names if name.endswith(".weight")).removesuffix(".weight")
    lora = prove_lora(source, pipeline, [target], shapes, key_map=identity, headers=headers, prefix="")
    assert lora.reason
    assert bool(lora.offenders) == (lora.holds is False)
