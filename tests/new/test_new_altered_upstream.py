"""Change vllm-omni and the package follows, or is refused; it never stays as it was."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaffold.spec import read_spec

pytestmark = pytest.mark.upstream

PACKAGE = "verl_omni/pipelines/bagel_flow_grpo"
ROLLOUT = f"{PACKAGE}/vllm_omni_rollout_adapter.py"
TRAINING = f"{PACKAGE}/diffusers_training_adapter.py"
COMMON = f"{PACKAGE}/common.py"
MODEL_FILE = f"{PACKAGE}/bagel_model.py"
PIPELINE = "vllm_omni/diffusion/models/bagel/pipeline_bagel.py"
MODEL = "vllm_omni/diffusion/models/bagel/bagel_transformer.py"
REGISTRY = "vllm_omni/diffusion/registry.py"

POINTS = "num_sample_points = num_timesteps + 1 if self._denoise_schedule_extra_step else num_timesteps"
SHIFT = "timesteps = timestep_shift * timesteps / (1 + (timestep_shift - 1) * timesteps)"
CALL = "timesteps[i], x_t, dts[i], **_sched_kw"


@pytest.fixture
def render(scaffold_cli: Callable[..., Any], upstream: Any, tmp_path: Path) -> Callable[..., Path]:
    """Return a function that renders for the altered copy."""

    def run(model: str = "bagel", *options: object) -> Path:
        out = tmp_path / "out"
        scaffold_cli("new", model, "--vllm-omni", upstream.root, "--patch", "--out", out, *options).success()
        return out

    return run


@pytest.fixture
def follow_or_refuse(scaffold_cli: Callable[..., Any], upstream: Any, tmp_path: Path) -> Callable[[], Path | None]:
    """Return a function that renders for the altered copy, or gives None where that is refused in one line."""

    def run() -> Path | None:
        out = tmp_path / "out"
        outcome = scaffold_cli("new", "bagel", "--vllm-omni", upstream.root, "--patch", "--out", out)
        if outcome.code == 0:
            return out
        outcome.refusal(3)
        assert not out.exists()
        return None

    return run


def constant(out: Path, name: str) -> Any:
    """Return a constant of ``common.py``."""
    for node in ast.parse((out / COMMON).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if ast.unparse(target) == name:
                return ast.literal_eval(node.value)
    raise AssertionError(name)


def step_parameters(out: Path) -> list[str]:
    """Return the positional parameters of the recording scheduler's ``step``."""
    for node in ast.parse((out / ROLLOUT).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and node.name == "_BagelSchedulerAdapter":
            step = next(n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "step")
            return [argument.arg for argument in step.args.args][1:]
    raise AssertionError("step")


def imports_of(path: Path) -> set[tuple[str, str]]:
    """Return module and name of each ``from … import``."""
    nodes = [node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.ImportFrom)]
    return {(node.module or "", alias.name) for node in nodes for alias in node.names}


def same_code(first: Path, second: Path, *paths: str) -> bool:
    """Whether modules are equal but for comments, docstrings and spacing."""

    def code(path: Path) -> str:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                node.value.value = ""
        return ast.dump(tree)

    return all(code(first / path) == code(second / path) for path in paths)


def test_unaltered_copy_gives_the_same_code(render: Callable[..., Path], default_tree: Path) -> None:
    assert same_code(render(), default_tree, ROLLOUT, TRAINING, COMMON, MODEL_FILE)


def test_unknown_version_is_not_called_none(render: Callable[..., Path]) -> None:
    for path in render().rglob("*"):
        if path.is_file():
            assert not re.search(r"vllm-omni\s+None", path.read_text()), path.name


def test_another_default_shift(upstream: Any, render: Callable[..., Path], default_tree: Path) -> None:
    upstream.replace(PIPELINE, '"timestep_shift", 3.0', '"timestep_shift", 2.5')
    out = render()
    assert constant(default_tree, "SCHEDULE_SHIFT") == 3.0
    assert constant(out, "SCHEDULE_SHIFT") == 2.5
    assert "with s = 2.5" in (out / "examples/flowgrpo_trainer/bagel/README.md").read_text()
    assert same_code(out, default_tree, ROLLOUT, TRAINING, MODEL_FILE)


def test_other_guidance_defaults_do_not_replace_the_recipe(
    upstream: Any, render: Callable[..., Path], default_tree: Path
) -> None:
    upstream.replace(PIPELINE, '"cfg_text_scale", 4.0', '"cfg_text_scale", 6.25')
    upstream.replace(PIPELINE, '"cfg_interval", (0.4, 1.0)', '"cfg_interval", (0.1, 0.9)')
    assert constant(render(), "CFG_DEFAULTS") == constant(default_tree, "CFG_DEFAULTS")


def test_other_guidance_defaults_without_a_recipe(
    upstream: Any, scaffold_cli: Callable[..., Any], tiny_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    upstream.replace(PIPELINE, '"cfg_text_scale", 4.0', '"cfg_text_scale", 6.25')
    upstream.replace(PIPELINE, '"cfg_interval", (0.4, 1.0)', '"cfg_interval", (0.1, 0.9)')
    upstream.rename_words({"BagelPipeline": "ZetaPipeline"})
    out = tmp_path / "out"
    scaffold_cli(
        *("new", "zeta", "--pipeline", "ZetaPipeline", "--vllm-omni", upstream.root),
        *("--checkpoint", tiny_checkpoint(), "--patch", "--out", out),
    ).success()
    text = (out / "verl_omni/pipelines/zeta_flow_grpo/common.py").read_text()
    assert '"cfg_text_scale": 6.25' in text
    assert '"cfg_interval": (0.1, 0.9)' in text


def test_renamed_guidance_argument(upstream: Any, render: Callable[..., Path]) -> None:
    upstream.replace(PIPELINE, 'extra_args.get("cfg_text_scale"', 'extra_args.get("pull"')
    out = render()
    assert "pull" in constant(out, "CFG_DEFAULTS")
    assert "cfg_text_scale" not in constant(out, "CFG_DEFAULTS")
    assert 'text_scale="pull"' in (out / COMMON).read_text()


def test_another_token_text(upstream: Any, render: Callable[..., Path]) -> None:
    upstream.replace(PIPELINE, "<|vision_start|>", "<|img_start|>")
    out = render()
    for path in (MODEL_FILE, "examples/flowgrpo_trainer/data_process/bagel_ocr.py"):
        text = (out / path).read_text()
        assert "<|img_start|>" in text
        assert "<|vision_start|>" not in text


def test_id_of_another_token_is_not_the_id_of_the_released_one(upstream: Any, render: Callable[..., Path]) -> None:
    upstream.replace(PIPELINE, "<|vision_start|>", "<|img_start|>")
    assert "151652" not in (render() / MODEL_FILE).read_text()


def test_token_id_written_out(upstream: Any, render: Callable[..., Path], kit_passes: Callable[..., None]) -> None:
    upstream.replace(PIPELINE, 'tokenizer.convert_tokens_to_ids("<|vision_end|>")', "151700")
    out = render()
    text = (out / MODEL_FILE).read_text()
    assert "151700" in text
    assert "151653" not in text
    assert "# None" not in text
    assert "token_id(model_path, None" not in text
    assert '"$end_of_image"' not in (out / "tests/special_e2e/build_bagel_tiny_random.py").read_text()


def test_another_begin_token(upstream: Any, render: Callable[..., Path], kit_passes: Callable[..., None]) -> None:
    upstream.replace(PIPELINE, "<|im_start|>", "<|begin|>")
    out = render()
    assert 'begin="<|begin|>"' in (out / ROLLOUT).read_text()
    assert '"<|begin|>"' in (out / "examples/flowgrpo_trainer/data_process/bagel_ocr.py").read_text()
    kit_passes(out)


RENAMED = {"Bagel": "Zeta", "generate_image": "sample_all", "BagelPipeline": "ZetaPipeline"}


@pytest.mark.parametrize(
    "pipeline", ["ZetaPipeline", "bagel", "vllm_omni.diffusion.models.bagel.pipeline_bagel:ZetaPipeline"]
)
def test_classes_and_methods_renamed(
    upstream: Any, render: Callable[..., Path], default_tree: Path, pipeline: str
) -> None:
    upstream.rename_words(RENAMED)
    out = render("bagel", "--pipeline", pipeline)
    module = "vllm_omni.diffusion.models.bagel.pipeline_bagel"
    assert (module, "ZetaPipeline") in imports_of(out / ROLLOUT)
    text = (out / ROLLOUT).read_text()
    assert "class BagelPipelineWithLogProb(composed_rollout.FoldingRollout, ZetaPipeline):" in text
    for path in out.rglob("*.py"):
        assert not re.search(r"\bBagelPipeline\b", path.read_text()), path.name
    assert same_code(out, default_tree, COMMON, MODEL_FILE)


def test_everything_renamed_files_and_folder_too(
    upstream: Any,
    scaffold_cli: Callable[..., Any],
    tiny_checkpoint: Callable[..., Path],
    tmp_path: Path,
    kit_passes: Callable[..., None],
) -> None:
    upstream.rename_words({**RENAMED, "bagel": "gondola", "pipeline_bagel": "pipe", "bagel_transformer": "decoder"})
    folder = upstream.root / "vllm_omni/diffusion/models/bagel"
    (folder / "pipeline_bagel.py").rename(folder / "pipe.py")
    (folder / "bagel_transformer.py").rename(folder / "decoder.py")
    for path in folder.glob("*.py"):
        text = path.read_text()
        path.write_text(text.replace("models.bagel", "models.gondola").replace(".bagel_transformer", ".decoder"))
    folder.rename(folder.with_name("gondola"))
    out = tmp_path / "out"
    scaffold_cli(
        *("new", "gondola", "--vllm-omni", upstream.root, "--checkpoint", tiny_checkpoint(), "--patch", "--out", out)
    ).success()
    rollout = out / "verl_omni/pipelines/gondola_flow_grpo/vllm_omni_rollout_adapter.py"
    assert ("vllm_omni.diffusion.models.gondola.pipe", "ZetaPipeline") in imports_of(rollout)
    for path in out.rglob("*"):
        assert "bagel" not in path.relative_to(out).as_posix().lower()
        if path.is_file() and path.suffix != ".patch":
            assert "bagel" not in path.read_text().lower(), path.name
    kit_passes(out)


def test_three_argument_step(upstream: Any, render: Callable[..., Path], kit_passes: Callable[..., None]) -> None:
    upstream.replace(MODEL, CALL, "timesteps[i], x_t, **_sched_kw")
    out = render()
    assert step_parameters(out) == ["model_output", "sigma", "sample"]
    assert "dt:" not in (out / ROLLOUT).read_text()
    kit_passes(out)


def test_step_arguments_in_another_order(upstream: Any, render: Callable[..., Path]) -> None:
    upstream.replace(
        MODEL, "v_t.to(x_t.device), timesteps[i], x_t, dts[i], **", "x_t, v_t.to(x_t.device), timesteps[i], **"
    )
    assert step_parameters(render()) == ["sample", "model_output", "sigma"]


@pytest.mark.parametrize("name", ["timestep", "sigma", "t"])
def test_step_called_with_keywords(upstream: Any, follow_or_refuse: Callable[[], Path | None], name: str) -> None:
    upstream.replace(MODEL, CALL, f"{name}=timesteps[i], sample=x_t, **_sched_kw")
    out = follow_or_refuse()
    if out is not None:
        assert {name, "sample"} <= set(step_parameters(out))


def test_one_step_more(upstream: Any, render: Callable[..., Path], kit_passes: Callable[..., None]) -> None:
    upstream.replace(MODEL, POINTS, "num_sample_points = num_timesteps + 1")
    out = render()
    text = (out / ROLLOUT).read_text()
    assert "more_steps=-1," in text
    assert read_spec(out / f"{PACKAGE}/scaffold.toml").spec.value("schedule.request_offset") == -1
    kit_passes(out)


@pytest.mark.parametrize(
    "points",
    [
        "num_timesteps + 2",
        pytest.param("num_timesteps - 1", marks=pytest.mark.table),
        "2 * num_timesteps",
        pytest.param("37", marks=pytest.mark.table),
    ],
)
def test_number_of_steps_that_no_offset_mends(
    upstream: Any, follow_or_refuse: Callable[[], Path | None], points: str
) -> None:
    upstream.replace(MODEL, POINTS, f"num_sample_points = {points}")
    out = follow_or_refuse()
    if out is not None:
        offsets = {"num_timesteps + 2": "request_offset = -2\n", "num_timesteps - 1": "request_offset = 1\n"}
        wanted = offsets.get(points, "NotImplementedError")
        spec, common = (out / f"{PACKAGE}/scaffold.lock.toml").read_text(), (out / COMMON).read_text()
        carried = "CallPlan(" in common  # a package that records has its levels from the rollout
        assert carried or wanted in spec + common


def test_loop_in_a_parent_class(upstream: Any, render: Callable[..., Path], default_tree: Path) -> None:
    upstream.move_methods(MODEL, "Bagel", ("generate_image",), "Looping", "vllm_omni/diffusion/models/bagel/looping.py")
    out = render()
    assert same_code(out, default_tree, ROLLOUT, TRAINING, COMMON, MODEL_FILE)
    assert "looping.py:" in (out / f"{PACKAGE}/scaffold.lock.toml").read_text()


@pytest.mark.parametrize(
    "formula", ["timesteps = timesteps**timestep_shift", "timesteps = torch.exp(-timestep_shift * (1 - timesteps))"]
)
def test_schedule_of_another_shape_is_not_guessed(
    upstream: Any, follow_or_refuse: Callable[[], Path | None], formula: str
) -> None:
    upstream.replace(MODEL, SHIFT, formula)
    out = follow_or_refuse()
    if out is not None:
        text = (out / COMMON).read_text()
        assert "NotImplementedError" in text
        assert "bagel_transformer.py:" in text


def test_ascending_schedule_is_not_rendered_as_a_descending_one(
    upstream: Any, follow_or_refuse: Callable[[], Path | None], default_tree: Path
) -> None:
    upstream.replace(MODEL, "torch.linspace(1, 0, num_sample_points", "torch.linspace(0, 1, num_sample_points")
    out = follow_or_refuse()
    assert out is None or not same_code(out, default_tree, ROLLOUT)


def test_other_bounds_of_the_guidance_interval(
    upstream: Any, follow_or_refuse: Callable[[], Path | None], default_tree: Path
) -> None:
    upstream.replace(MODEL, "t > cfg_interval[0] and t <= cfg_interval[1]", "cfg_interval[0] <= t < cfg_interval[1]")
    out = follow_or_refuse()
    if out is not None:
        assert not same_code(out, default_tree, TRAINING)
        carried = "CallPlan(" in (out / COMMON).read_text()
        assert carried or "(sigma >= low) & (sigma < high)" in (out / TRAINING).read_text()


def test_unconditional_branch_that_encodes_an_empty_prompt(
    upstream: Any, follow_or_refuse: Callable[[], Path | None], default_tree: Path
) -> None:
    upstream.replace(PIPELINE, "            if neg_prompt:\n", "            if True:\n")
    out = follow_or_refuse()
    assert out is None or not same_code(out, default_tree, TRAINING, ROLLOUT)


def test_image_positions_that_start_at_zero(
    upstream: Any, follow_or_refuse: Callable[[], Path | None], default_tree: Path
) -> None:
    upstream.replace(
        MODEL,
        "packed_position_ids.extend([curr_position_id] * (num_image_tokens + 2))",
        "packed_position_ids.extend([0] * (num_image_tokens + 2))",
    )
    out = follow_or_refuse()
    if out is not None:
        assert "torch.arange(latent_length" not in (out / MODEL_FILE).read_text()
        assert not same_code(out, default_tree, MODEL_FILE)


def test_scaled_time(upstream: Any, render: Callable[..., Path]) -> None:
    upstream.replace(MODEL, "self.time_embedder(timestep)", "self.time_embedder(timestep * 1000)")
    assert "1000.0 * timestep" in (render() / MODEL_FILE).read_text()


def test_no_denoising_loop_is_refused(scaffold_cli: Callable[..., Any], upstream: Any, tmp_path: Path) -> None:
    stub = "\n    def generate_image(self, **kwargs):\n        return [], None, None, None\n"
    loop = re.compile(r"\n    def generate_image\(.*?(?=\n    @staticmethod\n    def _combine_cfg)", re.DOTALL)
    upstream.rewrite(MODEL, lambda text: loop.sub(stub, text))
    scaffold_cli("new", "bagel", "--vllm-omni", upstream.root, "--patch", "--out", tmp_path / "out").refusal(3)
    assert not (tmp_path / "out").exists()


def test_other_latent_sizes_need_another_checkpoint(
    scaffold_cli: Callable[..., Any], upstream: Any, tmp_path: Path
) -> None:
    upstream.replace(PIPELINE, '"z_channels", 16', '"z_channels", 48')
    outcome = scaffold_cli("new", "bagel", "--vllm-omni", upstream.root, "--patch", "--out", tmp_path / "out")
    outcome.refusal(outcome.code if outcome.code in (2, 3) else 2)


def test_nothing_of_the_source_is_executed(upstream: Any, render: Callable[..., Path], tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    for path in (upstream.root / "vllm_omni").rglob("*.py"):
        if path.name != "__init__.py" or path.stat().st_size == 0:
            text = path.read_text()
            if "from __future__" not in text:
                path.write_text(f"import pathlib; pathlib.Path({str(touched)!r}).touch()\n{text}")
    render()
    assert not touched.exists()
