"""A pipeline of another shape: one decoder over pixel patches, and a solver that the loop's own method makes."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaffold.files.resources import kit_root
from scaffold.spec import read_spec
from scaffold.upstream import locate

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")
F = torch.nn.functional
pytestmark = pytest.mark.upstream

VERSION = "0.30.0"
MODEL = "hidream_o1_image"
PACKAGE = f"verl_omni/pipelines/{MODEL}_flow_grpo"
FOLDER = f"vllm_omni/diffusion/models/{MODEL}"
PROMPT = "two red cats"
SIGMAS = (1.0, 0.749, 0.0005)
ROWS, COLUMNS = 3, 4

# Runs where the contract kit stands for verl-omni; the module is fed as its own adapter feeds it.
RUN = """
import json, runpy, sys
import torch
sys.argv = ["build", "--output-dir", sys.argv[1]]
runpy.run_path("tests/special_e2e/build_MODEL_tiny_random.py", run_name="__main__")
from transformers import AutoTokenizer
from verl_omni.pipelines.MODEL_flow_grpo import MODEL_model as model_file
from verl_omni.pipelines.MODEL_flow_grpo import common
folder = sys.argv[2]
(module,) = [v for n, v in vars(model_file).items() if n.endswith("ForTraining")]
module = module.from_pretrained(folder, torch_dtype=torch.float32)
tokenizer = AutoTokenizer.from_pretrained(folder)
ids = tokenizer.encode(common.PROMPT_PREFIX + "two red cats" + common.PROMPT_SUFFIX, add_special_tokens=False)
latents = torch.randn(1, 12, 3072, generator=torch.Generator().manual_seed(1))
places = torch.cartesian_prod(torch.arange(3), torch.arange(4))[None]
found = {"ids": ids, "negative": list(module.config.negative_token_ids), "latents": latents}
with torch.no_grad():
    for name in ("ids", "negative"):
        for sigma in (1.0, 0.749, 0.0005):
            token_ids = torch.tensor([found[name]])
            found[name, sigma] = module(latents, torch.tensor([sigma]), token_ids, places)[0]
found["sigmas"] = {n: common.MODEL_sigmas(n) for n in (1, 6, 15, 50, 333)}
torch.save(found, "found.pt")
""".replace("MODEL", MODEL)


@pytest.fixture(scope="module")
def tree(rendered: Callable[..., Path]) -> Path:
    return rendered(MODEL, "--vllm-omni", VERSION)


@pytest.fixture(scope="module")
def found(tree: Path, tmp_path_factory: pytest.TempPathFactory, warm_python: Callable[..., Any]) -> dict[Any, Any]:
    """What the rendered module computes with its own tiny checkpoint."""
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("tiny")
    paths = {"PYTHONPATH": os.pathsep.join([str(kit_root()), str(tree)]), "PYTHONDONTWRITEBYTECODE": "1"}
    code = RUN.replace("sys.argv[1]]", repr(str(folder)) + "]").replace("sys.argv[2]", repr(str(folder)))
    code = code.replace('"found.pt"', repr(str(folder / "found.pt")))
    done = warm_python(["-W", "ignore", "-c", code], cwd=tree, env={**os.environ, **paths})
    assert done.returncode == 0, done.stderr[-3000:]
    result = torch.load(folder / "found.pt", weights_only=False)
    return {**result, "folder": folder}


class Reference:
    """The pipeline's arithmetic on a checkpoint's tensors, without modules: dense masks, one loop over the layers.

    It was compared with the real pipeline of 0.30.0, which it follows to 4e-7.
    """

    def __init__(self, folder: Path) -> None:
        from safetensors.torch import load_file

        self.tensors = {f"{k}": v.float() for k, v in load_file(folder / "model.safetensors").items()}
        self.text = json.loads((folder / "config.json").read_text())["text_config"]

    def linear(self, x: Any, name: str) -> Any:
        return F.linear(x, self.tensors[f"model.{name}.weight"], self.tensors.get(f"model.{name}.bias"))

    def norm(self, x: Any, name: str) -> Any:
        return F.rms_norm(x, x.shape[-1:], self.tensors[f"model.{name}.weight"], self.text["rms_norm_eps"])

    def velocity(self, ids: list[int], pixels: Any, told: float) -> Any:
        """dx / dsigma of pixels ``(1, N, 3072)`` at the noise level that the model is told."""
        token_ids = torch.tensor([[*ids, 151673]])
        frequencies = torch.exp(-math.log(10000) * torch.arange(128) / 128)
        angles = 1000 * (1 - torch.tensor(told)) * frequencies
        features = torch.cat([angles.cos(), angles.sin()])[None]
        time = self.linear(F.silu(self.linear(features, "t_embedder1.mlp.0")), "t_embedder1.mlp.2")
        text = self.tensors["model.language_model.embed_tokens.weight"][token_ids]
        text = torch.where((token_ids == 151673)[..., None], time[:, None], text)
        image = self.linear(self.linear(pixels, "x_embedder.proj1"), "x_embedder.proj2")
        hidden = torch.cat([text, image], dim=1)
        length, total = token_ids.shape[1], hidden.shape[1]
        mask = torch.ones(total, total, dtype=torch.bool).tril()
        mask[length - 1 :] = True
        cos, sin = self.rotary(length)
        for index in range(self.text["num_hidden_layers"]):
            hidden = self.layer(hidden, f"language_model.layers.{index}.", mask, cos, sin)
        clean = self.linear(self.norm(hidden, "language_model.norm"), "final_layer2.linear")[:, length:]
        return (pixels - clean) / max(told, 0.001)

    def rotary(self, length: int) -> tuple[Any, Any]:
        size, sections = self.text["head_dim"], self.text["rope_scaling"]["mrope_section"]
        grid = [(4096, 4096 + row, 4096 + column) for row in range(ROWS) for column in range(COLUMNS)]
        places = torch.tensor([(i, i, i) for i in range(length)] + grid, dtype=torch.float32)
        rates = 1.0 / self.text["rope_theta"] ** (torch.arange(0, size, 2) / size)
        angles = places[:, :1] * rates
        for axis in (1, 2):
            taken = slice(axis, 3 * sections[axis], 3)
            angles[:, taken] = places[:, axis : axis + 1] * rates[taken]
        angles = torch.cat([angles, angles], dim=-1)
        return angles.cos(), angles.sin()

    def layer(self, hidden: Any, name: str, mask: Any, cos: Any, sin: Any) -> Any:
        size, heads, shared = (self.text[k] for k in ("head_dim", "num_attention_heads", "num_key_value_heads"))

        def turned(x: Any) -> Any:
            return x * cos + torch.cat([-x[..., size // 2 :], x[..., : size // 2]], dim=-1) * sin

        x = self.norm(hidden, f"{name}input_layernorm")
        q, k, v = (self.linear(x, f"{name}self_attn.{p}_proj").unflatten(-1, (-1, size)).transpose(1, 2) for p in "qkv")
        q, k = turned(self.norm(q, f"{name}self_attn.q_norm")), turned(self.norm(k, f"{name}self_attn.k_norm"))
        k, v = (part.repeat_interleave(heads // shared, dim=1) for part in (k, v))
        scores = (q @ k.transpose(-1, -2) / size**0.5).masked_fill(~mask, -torch.inf)
        hidden = hidden + self.linear(
            (scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2), f"{name}self_attn.o_proj"
        )
        x = self.norm(hidden, f"{name}post_attention_layernorm")
        inner = F.silu(self.linear(x, f"{name}mlp.gate_proj")) * self.linear(x, f"{name}mlp.up_proj")
        return hidden + self.linear(inner, f"{name}mlp.down_proj")


@pytest.mark.parametrize("branch", ["ids", "negative"])
@pytest.mark.parametrize("sigma", SIGMAS)
def test_velocity_is_that_of_the_pipelines_arithmetic(found: dict[Any, Any], branch: str, sigma: float) -> None:
    """Latents are divided by the deviation of the initial noise; pure noise is told to the model as 0.999."""
    reference = Reference(found["folder"])
    expected = reference.velocity(found[branch], 8.0 * found["latents"], min(sigma, 0.999)) / 8.0
    difference = (found[branch, sigma] - expected).norm() / expected.norm()
    assert difference < 2e-6
    wrong = reference.velocity(found[branch][1:], 8.0 * found["latents"], min(sigma, 0.999)) / 8.0
    assert (wrong - expected).norm() / expected.norm() > 20 * difference


SHARDS = """
import json, os, shutil, sys
import torch
from safetensors.torch import load_file, save_file
from verl_omni.pipelines.MODEL_flow_grpo import MODEL_model as model_file
whole, parts = sys.argv[1:]
os.makedirs(parts)
for name in os.listdir(whole):
    if name.endswith(".json"):
        shutil.copy(os.path.join(whole, name), parts)
tensors = load_file(os.path.join(whole, "model.safetensors"))
places = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(sorted(tensors))}
for file in set(places.values()):
    save_file({name: tensors[name] for name in tensors if places[name] == file}, os.path.join(parts, file))
index = os.path.join(parts, "model.safetensors.index.json")
with open(index, "w") as file:
    json.dump({"weight_map": places}, file)
one, other = (model_file.WEIGHTS.open(folder) for folder in (whole, parts))
assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
for strange in ("../model.safetensors", "absent.safetensors"):
    with open(index, "w") as file:
        json.dump({"weight_map": {**places, "lm_head.weight": strange}}, file)
    try:
        model_file.WEIGHTS.open(parts)
    except (ValueError, FileNotFoundError) as error:
        print(type(error).__name__, strange in str(error))
""".replace("MODEL", MODEL)


def test_a_checkpoint_in_several_files_is_found_by_its_index(
    tree: Path, found: dict[Any, Any], tmp_path: Path, warm_python: Callable[..., Any]
) -> None:
    paths = {"PYTHONPATH": os.pathsep.join([str(kit_root()), str(tree)]), "PYTHONDONTWRITEBYTECODE": "1"}
    command = ["-W", "ignore", "-c", SHARDS, found["folder"], tmp_path / "parts"]
    done = warm_python(command, env={**os.environ, **paths})
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines() == ["ValueError True", "FileNotFoundError True"]


def test_prompts_are_those_of_the_chat_template(found: dict[Any, Any]) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(found["folder"], local_files_only=True)
    for text, ids in ((PROMPT, found["ids"]), (" ", found["negative"])):
        turn = [{"role": "user", "content": text}]
        whole = tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True) + "<|boi_token|>"
        assert tokenizer.encode(whole, add_special_tokens=False) == ids
    assert tokenizer.convert_tokens_to_ids("<|tms_token|>") == 151673 == len(tokenizer) - 1


def test_schedule_is_the_solvers(found: dict[Any, Any]) -> None:
    """Written out as the solver does it: numpy in float64, a start in float32, cut to integers."""
    levels = torch.from_numpy(1.0 - np.linspace(1, 1 / 1000, 1000)[::-1].copy()).float()
    levels = 3.0 * levels / (1 + 2.0 * levels)
    for steps, sigmas in found["sigmas"].items():
        grid = np.linspace(levels[0].item(), levels[-1].item(), steps + 1)[:-1]
        told = (3.0 * grid / (1 + 2.0 * grid) * 1000).astype(np.int64)
        assert told[0] == 999
        assert sigmas == [1.0, *(told[1:] / 1000).tolist()]


def test_the_readme_says_that_the_solver_is_replaced(tree: Path) -> None:
    (page,) = tree.glob("examples/*/*/README.md")
    text = " ".join(page.read_text(encoding="utf-8").split())
    assert (
        "**Solver.** `FlowUniPCMultistepScheduler` in the pipeline, Euler steps between its noise levels here" in text
    )


def test_grade_check_and_origins(tree: Path, scaffold_cli: Callable[..., Any]) -> None:
    spec = read_spec(tree / PACKAGE / "scaffold.toml").spec
    assert scaffold_cli("check", tree / PACKAGE).success()
    from_source = (
        "architecture.image_origin",
        "architecture.noise_scale",
        "architecture.prediction",
        "architecture.sequence",
        "architecture.text_attention",
        "architecture.time",
        "architecture.timestep_token",
        "architecture.velocity_floor",
        "cfg.declared",
        "checkpoint.loader_prefix",
        "latents.patch",
        "latents.sizes",
        "schedule.kind",
        "schedule.shift",
        "schedule.start_level",
        "upstream.ported",
        "upstream.time",
    )
    for key in from_source:
        assert spec.provenance[key].startswith("fact detail.") or "fact answers." in spec.provenance[key], key
    unknown = {f"{n}.{key}" for n, values in spec.sections.items() for key, value in values.items() if value is None}
    assert unknown <= {
        "architecture.experts",
        "cfg.epsilon",
        "cfg.image_scale",
        "cfg.interval",
        "cfg.interval_rule",
        "cfg.renorm_min",
        "cfg.renorm_type",
        "prompt.begin",
        "prompt.end",
        "upstream.scheduler_kwargs_attribute",
    }


@pytest.mark.slow
def test_rendered_tests_pass_under_the_kit(tree: Path, kit_passes: Callable[..., None]) -> None:
    kit_passes(tree)


def test_rendered_code_follows_the_source(
    upstream_copies: Any, tmp_path: Path, scaffold_cli: Callable[..., Any]
) -> None:
    copy = upstream_copies.Copy(locate(VERSION), tmp_path / "upstream", (MODEL, "schedulers"))
    pipeline, model = f"{FOLDER}/pipeline_{MODEL}.py", f"{FOLDER}/{MODEL}_transformer.py"
    copy.replace(pipeline, "NOISE_SCALE = 8.0", "NOISE_SCALE = 6.5")
    copy.replace(pipeline, "T_EPS = 0.001", "T_EPS = 0.02")
    copy.replace(pipeline, "fix_point: int = 4096", "fix_point: int = 512")
    copy.replace(pipeline, "shift=3.0,", "shift=2.0,")
    copy.replace(model, "tms_token_id = 151673", "tms_token_id = 151672")
    scaffold_cli("new", MODEL, "--vllm-omni", copy.root, "--patch", "--out", tmp_path / "out").success()
    package = tmp_path / "out" / PACKAGE
    module = (package / f"{MODEL}_model.py").read_text(encoding="utf-8")
    for line in (
        "NOISE_SCALE = 6.5",
        "origin=512",
        "floor=0.02, highest=HIGHEST_LEVEL",
        "timestep_token_id: int = 151672",
    ):
        assert line in module
    assert "SCHEDULE_SHIFT = 2.0" in (package / "common.py").read_text(encoding="utf-8")


def test_a_scheduler_that_is_bound_twice_is_not_taken_over(
    upstream_copies: Any, tmp_path: Path, scaffold_cli: Callable[..., Any]
) -> None:
    copy = upstream_copies.Copy(locate(VERSION), tmp_path / "upstream", (MODEL, "schedulers"))
    begin = "        with self.progress_bar(total=len(sched.timesteps)) as pbar:"
    copy.replace(f"{FOLDER}/pipeline_{MODEL}.py", begin, f"        sched = other(sched)\n\n{begin}")
    shown = scaffold_cli("new", MODEL, "--vllm-omni", copy.root, "--patch", "--out", tmp_path / "out").success()
    assert "partial" in shown
    assert "complete" not in shown
    adapter = (tmp_path / "out" / PACKAGE / "vllm_omni_rollout_adapter.py").read_text(encoding="utf-8")
    assert "_recorded_forward" not in adapter
    assert "NotImplementedError" in adapter
