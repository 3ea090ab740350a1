"""Bad input ends in one line on stderr and leaves the disk as it was."""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_checkpoint import LLM_CONFIG, ROOT_CONFIG, small_shapes

from scaffold.spec.lock import seal

pytestmark = pytest.mark.upstream
LAYER = "language_model.model.layers.1."
CLASH = "language_model.model.layers.0."


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Return a folder that is not there."""
    return tmp_path / "target" / "out"


@pytest.fixture
def refuse(scaffold_cli: Callable[..., Any], out: Path) -> Callable[..., str]:
    """Return a function that gives the error line of ``new`` with ``--out``."""

    def run(*arguments: object, code: int = 2) -> str:
        line: str = scaffold_cli("new", *arguments, "--patch", "--out", out).refusal(code)
        assert not out.parent.exists()
        return line

    return run


# MODEL and PIPELINE


@pytest.mark.parametrize(
    "model",
    [
        *("Bagel", "../x", "a/b", "a\\b", "", ".", "..", "class", "lambda", "None", "x y", " bagel", "bagel "),
        *("modèle", "ⅸ", "ｘ", "x\ny", "x\0y", "1x", "_x", "a-b", "a.b", "x{{y}}", "x'", "$(x)", "a" * 200),
    ],
)
def test_model_that_is_no_lower_case_identifier(refuse: Callable[..., str], model: str) -> None:
    line = refuse(model, "--pipeline", "bagel")
    assert "MODEL" in line
    assert len(line) < 300


def test_pipeline_class_that_is_not_registered(refuse: Callable[..., str]) -> None:
    assert "BagelPipeline" in refuse("BagelPipelin")


def test_model_whose_names_would_clash_with_rendered_ones(refuse: Callable[..., str]) -> None:
    assert "shift" in refuse("shift", "--pipeline", "bagel")


@pytest.mark.parametrize(
    ("pipeline", "near"),
    [("bagle", "bagel"), ("BagelPipelin", "BagelPipeline"), ("bagelpipeline", "BagelPipeline"), ("qwen_imag", "qwen")],
)
def test_unknown_pipeline_names_the_nearest(refuse: Callable[..., str], pipeline: str, near: str) -> None:
    line = refuse("mine", "--pipeline", pipeline)
    assert repr(pipeline) in line
    assert near in line.replace(repr(pipeline), "")


def test_unknown_pipeline_that_is_near_to_nothing_still_names_some(refuse: Callable[..., str]) -> None:
    assert "Pipeline" in refuse("nosuchthing").replace("nosuchthing", "")


def test_model_is_the_pipeline_unless_one_is_named(refuse: Callable[..., str]) -> None:
    assert "'bagelx'" in refuse("bagelx")


@pytest.mark.parametrize(
    "pipeline", ["", ":", "a:b:c", "os:system", "../x", "vllm_omni.nowhere:Thing", "vllm_omni.diffusion.data:Nothing"]
)
def test_pipeline_that_is_nothing(refuse: Callable[..., str], pipeline: str) -> None:
    refuse("mine", "--pipeline", pipeline)


@pytest.mark.parametrize(
    ("pipeline", "reason", "file"),
    [
        ("NextStep11Pipeline", "is not supported here", "nextstep_1_1/"),
        ("MiniMaxH3Pipeline", "is not supported here", "minimax_h3/"),
    ],
)
def test_refusal_names_reason_and_line(refuse: Callable[..., str], pipeline: str, reason: str, file: str) -> None:
    line = refuse("x", "--pipeline", pipeline, "--vllm-omni", "0.27.0rc1", code=3)
    assert line.startswith(f"{pipeline} of vllm-omni 0.27.0rc1 {reason}: ")
    assert re.search(rf" \(vllm_omni/diffusion/models/{re.escape(file)}\S*:\d+\)(;|$)", line), line


def test_refusal_names_a_later_diffusers_that_has_the_model(refuse: Callable[..., str]) -> None:
    line = refuse("x", "--pipeline", "MiniMaxH3Pipeline", "--vllm-omni", "0.27.0rc1", code=3)
    assert "joint streams" in line
    assert "diffusers 0.40.0 has the pipeline MiniMaxH3ModularPipeline" in line
    assert "but this version pins 0.38.0" in line


def test_pipeline_that_cannot_be_trained_is_refused_with_the_reason(
    scaffold_cli: Callable[..., Any], refuse: Callable[..., str]
) -> None:
    asked = ("MiniMaxH3Pipeline", "--vllm-omni", "0.27.0rc1")
    verdict = json.loads(scaffold_cli("inspect", *asked, "--format", "json").success())["verdict"]
    assert verdict["path"] == "refused"
    assert verdict["reason"] in refuse("x", "--pipeline", *asked, code=3)


# The command line itself


@pytest.mark.parametrize(
    "arguments",
    [[], ["bagel", "extra"], ["bagel", "--no-such-option"], ["bagel", "--out"]],
    ids=["no model", "two models", "unknown option", "option without value"],
)
def test_misused_command_line_is_one_line_too(
    scaffold_cli: Callable[..., Any], arguments: list[str], tmp_path: Path
) -> None:
    scaffold_cli("new", *arguments, cwd=tmp_path).refusal()
    assert not list(tmp_path.iterdir())


def test_neither_or_both_targets(scaffold_cli: Callable[..., Any], tmp_path: Path) -> None:
    for options in ([], ["--out", tmp_path / "out", "--verl-omni", tmp_path / "checkout"]):
        line = scaffold_cli("new", "bagel", *options).refusal()
        assert "--out" in line
        assert "--verl-omni" in line
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("option", ["--checkpoint", "--profile", "--vllm-omni", "--spec", "--date", "--pipeline"])
def test_empty_value_is_not_the_same_as_no_value(refuse: Callable[..., str], option: str) -> None:
    refuse("bagel", option, "")


def test_empty_target_is_not_the_working_directory(scaffold_cli: Callable[..., Any], tmp_path: Path) -> None:
    for option in ("--out", "--verl-omni"):
        scaffold_cli("new", "bagel", option, "", cwd=tmp_path).refusal()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("date", ["tomorrow", "2026-08-22", "13/40/2026", "01/01/2026\n# Heading", "1/1/26"])
def test_date_in_another_form(refuse: Callable[..., str], date: str) -> None:
    assert "MM/DD/YYYY" in refuse("bagel", "--date", date)


def test_unknown_release(refuse: Callable[..., str]) -> None:
    line = refuse("bagel", "--profile", "v9.9.9")
    assert "v0.2.0" in line


# Checkouts and output folders


def test_folder_that_is_no_checkout(scaffold_cli: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    half = tmp_path / "half/verl_omni/pipelines"
    half.mkdir(parents=True)
    (half / "__init__.py").write_text("")
    (tmp_path / "file").write_text("")
    before = sorted(tmp_path.rglob("*"))
    for folder in ("empty", "half", "file", "missing"):
        line = scaffold_cli("new", "bagel", "--verl-omni", tmp_path / folder).refusal()
        assert folder in line
        assert "checkout" in line
    assert sorted(tmp_path.rglob("*")) == before


def test_output_folder_with_other_content(
    scaffold_cli: Callable[..., Any], tmp_path: Path, tree_of: Callable[[Path], Any]
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    before = tree_of(tmp_path)
    line = scaffold_cli("new", "bagel", "--patch", "--out", tmp_path).refusal()
    assert "mine.txt" in line
    assert "nothing was written" in line
    assert tree_of(tmp_path) == before


def test_output_folder_with_an_edited_file(
    scaffold_cli: Callable[..., Any], tmp_path: Path, tree_of: Callable[[Path], Any], default_tree: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(default_tree, out, symlinks=True)
    edited = out / "verl_omni/pipelines/bagel_flow_grpo/common.py"
    edited.write_text(edited.read_text() + "# mine\n")
    before = tree_of(out)
    line = scaffold_cli("new", "bagel", "--patch", "--out", out).refusal()
    assert "common.py" in line
    assert tree_of(out) == before
    scaffold_cli("new", "bagel", "--patch", "--out", out, "--force").success()
    assert tree_of(out) == tree_of(default_tree)


def test_output_folder_with_a_link_on_the_way(scaffold_cli: Callable[..., Any], tmp_path: Path) -> None:
    outside, out = tmp_path / "outside", tmp_path / "out"
    outside.mkdir()
    out.mkdir()
    (out / "verl_omni").symlink_to(outside)
    for options in ([], ["--force"]):
        scaffold_cli("new", "bagel", "--patch", "--out", out, *options).refusal()
    assert not list(outside.iterdir())
    assert [path.name for path in out.iterdir()] == ["verl_omni"]


def test_output_folder_that_is_a_file_or_below_one(scaffold_cli: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for out in ("file", "file/below"):
        assert "file" in scaffold_cli("new", "bagel", "--patch", "--out", tmp_path / out).refusal()
    assert (tmp_path / "file").read_text() == "mine"


# vllm-omni


@pytest.mark.parametrize("kind", ["text", "empty folder", "file", "fake wheel", "wheel of another", "missing wheel"])
def test_vllm_omni_that_is_none(refuse: Callable[..., str], tmp_path: Path, kind: str) -> None:
    place = tmp_path / "thing-1.0-py3-none-any.whl"
    if kind == "empty folder":
        place.mkdir()
    elif kind == "file":
        place = tmp_path / "thing.txt"
        place.write_text("junk")
    elif kind == "fake wheel":
        place.write_bytes(b"junk" * 100)
    elif kind == "wheel of another":
        with zipfile.ZipFile(place, "w") as archive:
            archive.writestr("thing/__init__.py", "")
    refuse("bagel", "--vllm-omni", "junk" if kind == "text" else place)


def test_vllm_omni_without_a_registry(refuse: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "source/vllm_omni").mkdir(parents=True)
    (tmp_path / "source/vllm_omni/__init__.py").write_text("")
    assert "registry" in refuse("bagel", "--vllm-omni", tmp_path / "source")


def test_vllm_omni_that_does_not_parse(refuse: Callable[..., str], upstream: Any) -> None:
    (upstream.root / "vllm_omni/diffusion/models/bagel/pipeline_bagel.py").write_text("def (:\n")
    assert "pipeline_bagel.py" in refuse("bagel", "--vllm-omni", upstream.root)


def test_version_that_the_index_does_not_have(scaffold_cli: Callable[..., Any], out: Path) -> None:
    outcome = scaffold_cli("new", "bagel", "--vllm-omni", "0.99.0", "--patch", "--out", out)
    if "cannot be reached" in outcome.err:
        pytest.skip("the package index cannot be reached")
    assert "0.99.0" in outcome.refusal()


def test_version_that_cannot_be_fetched(scaffold_child: Callable[..., Any], out: Path, tmp_path: Path) -> None:
    outcome = scaffold_child(
        *("new", "bagel", "--vllm-omni", "0.27.0rc1", "--patch", "--out", out),
        OMNI_SCAFFOLD_CACHE=str(tmp_path / "cache"),
        **NO_INDEX,
    )
    assert "0.27.0rc1" in outcome.refusal()


NO_INDEX = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0", "PIP_NO_INDEX": None}


# Checkpoints


def test_checkpoint_that_is_not_there(refuse: Callable[..., str], tmp_path: Path) -> None:
    assert "missing" in refuse("bagel", "--checkpoint", tmp_path / "missing")
    (tmp_path / "empty").mkdir()
    assert "empty" in refuse("bagel", "--checkpoint", tmp_path / "empty")
    (tmp_path / "pickle").mkdir()
    (tmp_path / "pickle/model.bin").write_bytes(b"\x80\x04.")
    assert "model.bin" in refuse("bagel", "--checkpoint", tmp_path / "pickle")


@pytest.mark.parametrize("keep", [0, 5, 8, 100, -1, 0.5])
def test_truncated_checkpoint(refuse: Callable[..., str], tiny_checkpoint: Callable[..., Path], keep: float) -> None:
    file = tiny_checkpoint() / "ema.safetensors"
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * keep) if isinstance(keep, float) else keep])
    assert "ema.safetensors" in refuse("bagel", "--checkpoint", file.parent)


def test_checkpoint_of_another_model(refuse: Callable[..., str], tiny_checkpoint: Callable[..., Path]) -> None:
    other = tiny_checkpoint({**dict.fromkeys(small_shapes()), "unet.conv_in.weight": (2, 2)}, name="other")
    assert "other" in refuse("bagel", "--checkpoint", other)


@pytest.mark.parametrize(
    "name",
    [
        *("language_model.model.norm_moe_gen.weight", "language_model.model.norm.weight"),
        "language_model.model.embed_tokens.weight",
        *(LAYER + "mlp_moe_gen.up_proj.weight", LAYER + "self_attn.q_norm.weight", LAYER + "self_attn.q_proj.bias"),
        *(LAYER + "self_attn.v_proj_moe_gen.weight", LAYER + "input_layernorm_moe_gen.weight"),
        *(CLASH + "self_attn.q_proj.weight", CLASH + "self_attn.k_proj.weight", CLASH + "mlp.up_proj.weight"),
        *(CLASH + "mlp.gate_proj.weight", CLASH + "self_attn.q_norm.weight", CLASH + "self_attn.k_norm.weight"),
        *("time_embedder.mlp.0.weight", "time_embedder.mlp.2.bias", "latent_pos_embed.pos_embed"),
        *("vae2llm.weight", "vae2llm.bias", "llm2vae.weight", "llm2vae.bias"),
    ],
)
def test_checkpoint_without_a_tensor_that_is_loaded(
    refuse: Callable[..., str], tiny_checkpoint: Callable[..., Path], name: str
) -> None:
    refuse("bagel", "--checkpoint", tiny_checkpoint({name: None}))


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        (LAYER + "mlp_moe_gen.up_proj.weight", (161, 96)),
        (LAYER + "self_attn.o_proj.weight", (96, 97)),
        (CLASH + "self_attn.k_proj.weight", (33, 96)),
        (CLASH + "self_attn.q_norm.weight", ()),
        (CLASH + "self_attn.q_norm.weight", (0,)),
        (CLASH + "self_attn.q_proj.weight", ()),
        (CLASH + "self_attn.k_proj.weight", (0, 96)),
        (CLASH + "mlp.gate_proj.weight", ()),
        ("language_model.model.embed_tokens.weight", (300,)),
        ("language_model.model.embed_tokens.weight", ()),
        ("latent_pos_embed.pos_embed", (63, 96)),
        ("latent_pos_embed.pos_embed", (64,)),
        ("latent_pos_embed.pos_embed", ()),
        ("time_embedder.mlp.0.weight", (96,)),
        ("time_embedder.mlp.0.weight", ()),
        ("vae2llm.weight", (96, 63)),
        ("vae2llm.weight", (96,)),
    ],
)
def test_checkpoint_with_a_tensor_of_another_shape(
    refuse: Callable[..., str], tiny_checkpoint: Callable[..., Path], name: str, shape: tuple[int, ...]
) -> None:
    refuse("bagel", "--checkpoint", tiny_checkpoint({name: shape}))


@pytest.mark.parametrize("index", ["x", "-1", "1.0", "٣"])
def test_checkpoint_with_a_layer_that_is_no_number(
    refuse: Callable[..., str], tiny_checkpoint: Callable[..., Path], index: str
) -> None:
    refuse("bagel", "--checkpoint", tiny_checkpoint({f"language_model.model.layers.{index}.norm.weight": (96,)}))


BOUNDED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
from scaffold.cli import main
main()
"""


@pytest.mark.parametrize("index", ["99999999", "9" * 21, "9" * 5000])
def test_checkpoint_with_a_layer_of_an_absurd_number(
    scaffold_child: Callable[..., Any], tiny_checkpoint: Callable[..., Path], out: Path, index: str
) -> None:
    folder = tiny_checkpoint({f"language_model.model.layers.{index}.input_layernorm.weight": (96,)})
    scaffold_child("new", "bagel", "--checkpoint", folder, "--patch", "--out", out, code=BOUNDED).refusal()
    assert not out.parent.exists()


@pytest.mark.parametrize("files", ["llm", "root", "both"])
def test_checkpoint_without_the_configuration_that_the_pipeline_reads(
    refuse: Callable[..., str], tiny_checkpoint: Callable[..., Path], files: str
) -> None:
    changes: dict[str, Any] = {name: None for name in ("llm", "root") if files in (name, "both")}
    line = refuse("bagel", "--checkpoint", tiny_checkpoint(**changes))
    assert "config" in line


NOT_NUMBERS = [
    *(("rope_theta", value) for value in (None, "1e6", [1, 2], {"a": 1}, True, float("nan"), float("inf"), 0, -1)),
    *(("rms_norm_eps", value) for value in (None, '__import__("os")', float("nan"), -1.0)),
    *(("num_attention_heads", value) for value in ("6", 0, -6, 5, 6.5, True, [6])),
    *(("num_key_value_heads", value) for value in ("2", 0, 3, [2], True)),
    ("rope_theta", 10**400),
]


@pytest.mark.parametrize(("key", "value"), NOT_NUMBERS, ids=[f"{key}-{str(v)[:12]}" for key, v in NOT_NUMBERS])
def test_configuration_value_of_another_kind(
    refuse: Callable[..., str], tiny_checkpoint: Callable[..., Path], key: str, value: Any
) -> None:
    refuse("bagel", "--checkpoint", tiny_checkpoint(llm={**LLM_CONFIG, key: value}))


@pytest.mark.parametrize("text", ["{", "[1]", "null", "", "\x00", '{"a": 1, "a": 2}'])
def test_configuration_that_is_no_object(
    refuse: Callable[..., str], tiny_checkpoint: Callable[..., Path], text: str
) -> None:
    folder = tiny_checkpoint()
    (folder / "llm_config.json").write_text(text)
    assert "config" in refuse("bagel", "--checkpoint", folder)


@pytest.mark.parametrize(
    "change", [{"latent_patch_size": 4}, {"vae_config": {"z_channels": 48, "downsample": 8}}], ids=["patch", "channels"]
)
def test_configuration_that_contradicts_the_tensors(
    refuse: Callable[..., str], tiny_checkpoint: Callable[..., Path], change: dict[str, Any]
) -> None:
    refuse("bagel", "--checkpoint", tiny_checkpoint(root={**ROOT_CONFIG, **change}))


# Specs


@pytest.fixture
def edited_spec(reference: Path, tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes the golden spec with one text replaced."""
    folder = reference / "verl_omni/pipelines/bagel_flow_grpo"
    text, lock = (folder / "scaffold.toml").read_text(), (folder / "scaffold.lock.toml").read_text()

    def write(old: str, new: str) -> Path:
        assert old in text or old in lock
        path = tmp_path / "edited.toml"
        path.write_text(text.replace(old, new, 1))
        (tmp_path / "scaffold.lock.toml").write_text(lock if old in text else seal(lock.replace(old, new, 1)))
        return path

    return write


def test_spec_of_another_model(refuse: Callable[..., str], edited_spec: Callable[..., Path]) -> None:
    line = refuse("other", "--spec", edited_spec("schema = 2", "schema = 2"))
    assert "'bagel'" in line
    assert "'other'" in line


@pytest.mark.parametrize("content", [None, b"schema = \n", b"", b"\xff\xfe", b"schema = 2\n", b"schema = 1\n"])
def test_spec_that_is_none(refuse: Callable[..., str], tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "broken.toml"
    if content is not None:
        path.write_bytes(content)
    refuse("bagel", "--spec", path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('package = "bagel_flow_grpo"', 'package = "../../evil"'),
        ('package = "bagel_flow_grpo"', "package = 3"),
        ('prefix = "Bagel"', 'prefix = "B\\nimport os"'),
        ('module_class = "BagelForTraining"', 'module_class = "X(object)"'),
        ('class = "BagelPipeline"', 'class = "BagelPipeline; import os"'),
        ('module = "vllm_omni.diffusion', 'module = "os; vllm_omni.diffusion'),
        ("shift = 3.0", 'shift = "3.0"'),
        ("shift = 3.0", ""),
        ('request_offset = 0, steps = "n-1"', 'request_offset = 0, steps = "n+7"'),
        ('request_offset = 0, steps = "n-1"', 'request_offset = "x", steps = "n-1"'),
        ("num_hidden_layers = 28", 'num_hidden_layers = "28"'),
        ('input_projection = "vae2llm"', 'input_projection = "a b"'),
        ('mlp = "swiglu"', 'mlp = "other"'),
        ('image_position = "text_length"', 'image_position = "elsewhere"'),
        ('text_attention = "causal"', 'text_attention = "elsewhere"'),
        ("[lora]\n", "[lorax]\n"),
        ('op = "rename"', 'op = "explode"'),
        ('docs_link = "docs/examples', 'docs_link = "../../docs/examples'),
        ('example_readme = "examples', 'example_readme = "../examples'),
        ('smoke_runner = "tests/', 'smoke_runner = "../tests/'),
    ],
)
def test_spec_edited_to_something_impossible(
    refuse: Callable[..., str], edited_spec: Callable[..., Path], old: str, new: str
) -> None:
    refuse("bagel", "--spec", edited_spec(old, new))


@pytest.mark.parametrize(
    "options",
    [["--pipeline", "bagel"], ["--checkpoint", "x"], ["--vllm-omni", "0.22.0"], ["--profile", "v0.1.0"]],
    ids=lambda options: options[0],
)
def test_spec_beside_options_that_it_would_silently_win_over(
    refuse: Callable[..., str], edited_spec: Callable[..., Path], options: list[str]
) -> None:
    assert "--spec" in refuse("bagel", "--spec", edited_spec("schema = 2", "schema = 2"), *options)
