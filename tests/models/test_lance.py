"""A pipeline that inherits another's loop, with positions, weights and prompts of its own: rendered and run."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from image_checkpoint import write_checkpoint
from installed import require

from scaffold.spec import IntegrationSpec, read_spec

pytestmark = pytest.mark.upstream
VERSION = "0.30.0"
PACKAGE = "verl_omni/pipelines/lance_flow_grpo"


def spec_of(tree: Path) -> IntegrationSpec:
    return read_spec(tree / PACKAGE / "scaffold.toml").spec


def test_what_the_source_says_and_what_the_preset(lance: Path) -> None:
    spec = spec_of(lance)
    expected = {
        "grade.value": "complete",
        "schedule.steps": "n",
        "schedule.shift": 3.5,
        "upstream.pinned": {"timestep_shift": 3.5},
        "upstream.request_class": "DiffusionRequestBatch",
        "latents.channels": 48,
        "latents.downsample": 16,
        "latents.patch": 1,
        "architecture.image_position": "grid_sequential",
        "architecture.rotary": "sections",
        "architecture.position_embedding": "latent_pos_embed",
        "architecture.position_table_side": 64,
        "architecture.hidden_size": 2048,
        "checkpoint.files": ["model.safetensors"],
        "checkpoint.second_prefix": "bagel.",
        "prompt.requested": True,
        "lora.sync": "fold",
        "lora.placeholder": "plain",
    }
    assert {key: spec.value(key) for key in expected} == expected
    guidance = spec.value("cfg.defaults")
    assert guidance == {
        "cfg_text_scale": 4.0,
        "cfg_img_scale": 1.0,
        "cfg_interval": [0.4, 1.0],
        "cfg_renorm_type": "global",
        "cfg_renorm_min": 0.0,
    }
    told = {key: spec.provenance[key] for key in ("architecture.image_position", "cfg.defaults", "latents.channels")}
    assert all(text.startswith("fact ") for text in told.values()), told
    assert "preset" not in spec.provenance["cfg.defaults"]


def test_the_prompt_is_the_one_that_upstream_renders(lance: Path) -> None:
    """The pipeline's own helper makes it for those who send requests; the preset says the same."""
    import ast

    from scaffold.upstream import locate

    tree = locate(VERSION).tree("vllm_omni/diffusion/models/lance/prompts.py")
    (prompts,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and node.value is not None and ast.unparse(node.target) == "SYSTEM_PROMPTS"
    )
    turn = f"<|im_start|>system\n{prompts['t2i', 'image']}<|im_end|>\n<|im_start|>user\na cat<|im_end|>\n"
    spec = spec_of(lance)
    rendered = f"{spec.value('prompt.prefix')}a cat{spec.value('prompt.suffix')}"
    assert rendered == f"{turn}<|im_start|>assistant\n".removeprefix("<|im_start|>")


def test_the_smoke_test_has_room_for_its_prompts(lance: Path) -> None:
    """The tiny tokenizer may make a token of each byte, and the data script cuts nothing."""
    scripts = lance / "tests/special_e2e"
    captions = runpy.run_path(str(scripts / "create_dummy_lance_data.py"))["captions"](8)
    spec = spec_of(lance)
    longest = max(
        len(f"{spec.value('prompt.prefix')}{text}{spec.value('prompt.suffix')}".encode()) for text in captions
    )
    allowed = re.search(r"^MAX_PROMPT_LENGTH=(\d+)$", (scripts / "run_flowgrpo_lance.sh").read_text(), re.M)
    assert allowed is not None
    assert longest + 2 <= int(allowed[1])  # the pipeline puts a token on either side


def test_the_engine_knows_the_tiny_checkpoint(lance: Path) -> None:
    """It asks ``config.json`` for a name, or the folder for the released one, which the smoke test's has not."""
    import ast

    from scaffold.upstream import locate

    compared = {
        ast.unparse(node.left): ast.literal_eval(node.comparators[0])
        for node in ast.walk(locate(VERSION).tree("vllm_omni/diffusion/data.py"))
        if isinstance(node, ast.Compare) and ast.unparse(node.left) == "cfg.get('model_name')"
    }
    config = spec_of(lance).value("tiny.configs")["config.json"]
    assert compared == {"cfg.get('model_name')": config["model_name"]}


def test_check_has_nothing_to_say(lance: Path, scaffold_cli: Callable[..., Any]) -> None:
    assert "All checks passed" in scaffold_cli("check", lance).success()


def test_the_scripts_name_the_folder_of_the_image_weights(lance: Path) -> None:
    examples = lance / "examples/flowgrpo_trainer/lance"
    folder = "models/bytedance-research/Lance/Lance_3B"
    assert f"MODEL_PATH=${{MODEL_PATH:-$HOME/{folder}}}" in (examples / "run_lance_ocr_lora.sh").read_text("utf-8")
    readme = (examples / "README.md").read_text("utf-8")
    assert f"--model_path ~/{folder} " in readme
    assert "hf download bytedance-research/Lance --local-dir ~/models/bytedance-research/Lance\n" in readme


@pytest.mark.slow
def test_its_own_tests_pass(lance: Path, kit_environment: Callable[..., Any], warm_python: Callable[..., Any]) -> None:
    done = warm_python(
        ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests/pipelines"],
        cwd=lance,
        env=kit_environment(lance),
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


CONTRACTS = (
    "forward",
    "inputs-matter",
    "padding-invariance",
    "batch-equals-singles",
    "cfg-branches",
    "cfg-formula",
    "config-round-trip",
    "loading",
    "prompt-ids",
    "prompt-preprocessor",
    "rollout-log-probs",
    "window-alignment",
)


def test_contracts_hold(warm: None, lance: Path) -> None:
    from scaffold.verify.run import verify

    found = verify(lance / PACKAGE, select=CONTRACTS)
    assert {result.id: result.status for result in found.checks} == dict.fromkeys(CONTRACTS, "pass"), found.checks


LAYOUT = """
import json, math, sys
from functools import partial
import torch
from verl_omni.pipelines.flow_grpo_runtime.layouts import GridSequentialLayout
from verl_omni.pipelines.flow_grpo_runtime.layouts import sections_tables
from verl_omni.pipelines.lance_flow_grpo.lance_model import LanceForTraining, LanceTrainingConfig

config = LanceTrainingConfig.from_model_path(sys.argv[1])
module = LanceForTraining.from_pretrained(sys.argv[1], torch_dtype=torch.float32)
grid = torch.cartesian_prod(torch.arange(2), torch.arange(3)).expand(2, -1, -1)
lengths = (5, 3)
mask = torch.arange(5) < torch.tensor(lengths)[:, None]
tables = partial(sections_tables, config=config)
layout = GridSequentialLayout(5, mask, grid, tables, grid.device, before=1, after=1)
axes = [0] * 4 + [1] * 2 + [2] * 2


def furthest(tables, positions):
    far = 0.0
    for token, position in enumerate(positions):
        for j, axis in enumerate(axes):
            angle = position[axis] * config.rope_theta ** (-j / 8)
            for table, wanted in zip(tables, (math.cos(angle), math.sin(angle))):
                far = max(far, *(abs(table[token, 0, k].item() - wanted) for k in (j, j + 8)))
    return far


apart = []
for row, length in enumerate(lengths):
    text = [(i, i, i) for i in range(5)] + [(length,) * 3, (length + 4,) * 3]
    image = [(length + 1, length + 1 + r, length + 1 + c) for r in range(2) for c in range(3)]
    apart.append(furthest([t[row] for t in layout.rotary[:2]], text))
    apart.append(furthest([t[row] for t in layout.latent_rotary[:2]], image))
sizes = [list(config.rope_sections), config.rope_theta, len(module.embed_tokens.weight), module.config.max_latent_size]
print(json.dumps([apart, sizes]))
"""


@pytest.mark.parametrize("inside", [True, False])
def test_positions_count_on_behind_each_text(
    lance: Path,
    kit_environment: Callable[..., Any],
    warm_python: Callable[..., Any],
    tmp_path: Path,
    inside: bool,
) -> None:
    """Of texts of 5 and 3 tokens in one batch, with an image of 2 by 3; sizes are those of the checkpoint."""
    require("torch")
    checkpoint = write_checkpoint(tmp_path / "Lance_3B")
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    folder = checkpoint if inside else tmp_path  # the repository is as good as the folder of its weights
    done = warm_python(["-c", LAYOUT, folder], env=kit_environment(lance))
    assert done.returncode == 0, done.stderr[-2000:]
    apart, sizes = json.loads(done.stdout.splitlines()[-1])
    assert sizes == [[4, 2, 2], 500000.0, 320, 8]
    assert max(apart) < 1e-6


def test_a_table_of_positions_in_time_is_refused(scaffold_cli: Callable[..., Any], tmp_path: Path) -> None:
    """The weights that make videos have one; their latents are others."""
    checkpoint = write_checkpoint(tmp_path / "Lance_3B_Video", {"latent_pos_embed.pos_embed": (31 * 64, 64)})
    flags = ("--pipeline", "LancePipeline", "--vllm-omni", VERSION, "--checkpoint", checkpoint)
    refused = scaffold_cli("new", "lance", *flags, "--patch", "--out", tmp_path / "out").refusal()
    assert "'latent_pos_embed.pos_embed' has 1984 rows, which is not a square grid" in refused


def test_a_checkpoint_without_a_configuration_of_its_own_is_taken(
    scaffold_cli: Callable[..., Any], tmp_path: Path
) -> None:
    checkpoint = write_checkpoint(tmp_path / "Lance_3B")
    flags = ("--pipeline", "LancePipeline", "--vllm-omni", VERSION, "--checkpoint", checkpoint)
    scaffold_cli("new", "lance", *flags, "--patch", "--out", tmp_path / "out").success()
    spec = spec_of(tmp_path / "out")
    assert spec.value("architecture.hidden_size") == 64
    assert {"field": "rope_sections", "default": [4, 2, 2], "of": "text"}.items() <= next(
        entry for entry in spec.value("checkpoint.fields") if entry["field"] == "rope_sections"
    ).items()
