"""Names that the actor sends, followed through loading code to the engine's parameters."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engine_tree import ADAPTER, LAYERS, small_upstream

from scaffold.errors import ScaffoldError
from scaffold.remap import KeyMap, Rule
from scaffold.remap.engine import EngineProof, prove_engine

MAP = KeyMap((Rule("model.", ""),))
NAMES = {
    f"layers.{layer}.{name}.weight": (4, 4)
    for layer in range(2)
    for name in ("attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.o_proj", "gate_proj", "up_proj", "down_proj")
}
PARAMETERS = {**NAMES, "layers.0.norm.weight": (4,), "layers.1.norm.weight": (4,), "head.weight": (4, 4)}
PACKAGE = {"rollout": ast.parse(ADAPTER.format(more="")), "model": ast.parse('KEYS: tuple = ("model.",)\n')}


@pytest.fixture
def prove(tmp_path: Path, headers: Callable[..., Any]) -> Callable[..., EngineProof]:
    """Return a function that proves a small pipeline with lines of its loading code replaced."""

    def run(key_map: KeyMap = MAP, package: Any = None, **lines: str) -> EngineProof:
        keys = headers({f"model.{name}": shape for name, shape in PARAMETERS.items()})
        return prove_engine(small_upstream(tmp_path, **lines), "small", key_map, keys, PARAMETERS, package=package)

    return run


def test_every_weight_lands_where_the_checkpoint_puts_it(prove: Callable[..., EngineProof]) -> None:
    proof = prove()
    assert proof.holds is True, proof.reason
    assert not proof.offenders
    landing = proof.landings["layers.1.attn.k_proj.weight"][0]
    assert (landing.place, landing.shard) == ("transformer.layers.1.attn.qkv_proj.weight", "k")
    assert landing.at is not None
    assert landing.at.file == "vllm_omni/diffusion/models/small/pipeline_small.py"
    assert proof.landings["layers.0.up_proj.weight"][0].shard == "1"
    assert proof.landings["head.weight"][0].place == "transformer.head.weight"


def test_a_loop_that_an_error_ends_leaves_the_loop_around_it_as_it_was(prove: Callable[..., EngineProof]) -> None:
    first = """
    try:
        for part in ("no.", "none."):
            params[part + name]
    except KeyError:
        pass
    if name.endswith("o_proj.weight"):
        params[name].weight_loader(params[name], weight)
        continue
    """
    proof = prove(first=first.strip().replace("\n    ", "\n            "))
    assert proof.holds is True, proof.reason
    assert all(proof.landings.values())


def test_a_package_is_followed_through_its_own_modules(prove: Callable[..., EngineProof]) -> None:
    proof = prove(package=PACKAGE)
    assert proof.holds is True, proof.reason
    assert "rollout adapter" in proof.reason


def test_a_package_that_sends_other_names_is_refused(prove: Callable[..., EngineProof]) -> None:
    wrong = {**PACKAGE, "model": ast.parse('KEYS = ("model.denoiser.",)')}
    proof = prove(package=wrong)
    assert proof.holds is False
    assert {o.check for o in proof.offenders} == {"engine"}
    assert proof.offenders[0].name.startswith("transformer.")
    assert "denoiser.layers.0" in proof.reason


def test_a_package_without_a_loader_sends_the_names_as_they_are(prove: Callable[..., EngineProof]) -> None:
    bare = {"rollout": ast.parse("class Rollout(SmallPipeline):\n    pass\n")}
    assert prove(package=bare).holds is True
    proof = prove(package=bare, component="denoiser")
    assert proof.holds is False
    assert "no module or parameter 'transformer'" in proof.offenders[0].message


def test_names_that_the_package_leaves_out_are_all_listed(prove: Callable[..., EngineProof]) -> None:
    dropping = ADAPTER.format(more="").replace(
        "yield name, weight", 'if "norm" not in name:\n                yield name, weight'
    )
    proof = prove(package={**PACKAGE, "rollout": ast.parse(dropping)})
    assert proof.holds is False
    assert [o.name for o in proof.offenders] == ["transformer.layers.0.norm.weight", "transformer.layers.1.norm.weight"]
    assert "drops" in proof.offenders[0].message
    assert "pipeline_small.py:" in proof.offenders[0].message


def test_exchanged_names_are_refused_with_both_places(prove: Callable[..., EngineProof]) -> None:
    swapping = ADAPTER.format(more="").replace(
        "yield name, weight",
        'yield name.replace("gate_proj", "?").replace("up_proj", "gate_proj").replace("?", "up_proj"), weight',
    )
    proof = prove(package={**PACKAGE, "rollout": ast.parse(swapping)})
    assert proof.holds is False
    assert len(proof.offenders) == 4
    assert "shard 0" in proof.offenders[0].message
    assert "shard 1" in proof.offenders[0].message


def test_two_names_on_one_parameter_are_refused(prove: Callable[..., EngineProof]) -> None:
    proof = prove(first='name = name.replace(".k_proj", ".q_proj")')
    assert proof.holds is False
    assert "both go to" in proof.offenders[0].message


def test_a_prefix_that_the_loader_skips_is_left_open(prove: Callable[..., EngineProof]) -> None:
    proof = prove(first='if name.startswith("head."):\n                continue')
    assert proof.holds is None
    assert "'model.head.weight'" in proof.reason


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("if weight.sum() > 0:\n                continue", "weight.sum() > 0"),
        ("name = self.renames[name]", "known"),
        ("while True:\n                pass", "loop without an end"),
    ],
)
def test_what_the_text_does_not_settle_is_none_with_its_line(
    prove: Callable[..., EngineProof], line: str, place: str
) -> None:
    proof = prove(first=line)
    assert proof.holds is None
    assert not proof.offenders
    assert place in proof.reason
    assert "pipeline_small.py:" in proof.reason


def test_a_loader_that_refuses_the_checkpoint_itself_decides_nothing(prove: Callable[..., EngineProof]) -> None:
    proof = prove(start='raise RuntimeError("elsewhere")')
    assert proof.holds is None
    assert "elsewhere" in proof.reason


def test_a_mapper_skip_lists_and_a_table_of_the_class_are_followed(
    prove: Callable[..., EngineProof],
) -> None:
    mapped = LAYERS.replace(
        """return AutoWeightsLoader(self).load_weights(
            ("{component}." + n.removeprefix("model.") if n.startswith("model.") else n, w) for n, w in weights
        )""",
        'return AutoWeightsLoader(self, skip_prefixes=["vit."]).load_weights(weights, mapper=self.mapper)',
    ).replace(
        "from torch import nn", "from torch import nn\nfrom vllm.model_executor.models.utils import WeightsMapper"
    )
    assert "mapper=self.mapper" in mapped
    table = 'mapper = WeightsMapper(orig_to_new_prefix={"model.": "transformer."})'
    assert prove(layers=mapped, pipeline=table).holds is True
    lost = table.replace("transformer.", "elsewhere.")
    assert prove(layers=mapped, pipeline=lost).holds is None


def test_a_map_that_leads_to_no_key_decides_nothing(prove: Callable[..., EngineProof]) -> None:
    assert prove(key_map=KeyMap((Rule("elsewhere.", ""),))).holds is None


def test_an_unknown_pipeline_is_an_error(tmp_path: Path, headers: Callable[..., Any]) -> None:
    with pytest.raises(ScaffoldError, match="nobody"):
        prove_engine(small_upstream(tmp_path), "nobody", MAP, headers({"model.head.weight": (4, 4)}), PARAMETERS)


@pytest.mark.parametrize(
    "line",
    [
        'name = "x" * 10**12 + name',
        "name = name + str(9**9**9)",
        'name = "%9999999999d" % 1 + name',
        'name = name.replace("", name * 500).replace("", name * 500).replace("", name * 500)',
        'import re\n            name = re.sub("(a+)+$", "", "a" * 60 + "b") + name',
        "name = self.load_weights([(name, weight)])",
        "while name:\n                name = name",
        "name = [n for n in range(10**9)]",
    ],
)
def test_loading_code_that_wants_too_much_is_left_open(prove: Callable[..., EngineProof], line: str) -> None:
    assert prove(first=line).holds is None


def test_parameters_that_are_parts_of_keys_are_left_open(prove: Callable[..., EngineProof]) -> None:
    split = Rule("model.head.weight", None, "split", parts=("head.weight", "layers.0.norm.weight"))
    proof = prove(key_map=KeyMap((split, *MAP.rules)))
    assert proof.holds is None
    assert "2 of 17 parameters have no key of their own" in proof.reason
