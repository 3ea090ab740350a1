"""``--checkpoint``: the sizes are the checkpoint's, and nothing that it says is executed."""

from __future__ import annotations

import ast
import re
import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_checkpoint import LAYERS, LLM_CONFIG, ROOT_CONFIG

pytestmark = pytest.mark.upstream
PACKAGE = "verl_omni/pipelines/bagel_flow_grpo"
MODEL = f"{PACKAGE}/bagel_model.py"
README = "examples/flowgrpo_trainer/bagel/README.md"
SCRIPT = "examples/flowgrpo_trainer/bagel/run_bagel_ocr_lora.sh"
SMOKE = "tests/special_e2e/run_flowgrpo_bagel.sh"


@pytest.fixture
def render(scaffold_cli: Callable[..., Any], tmp_path: Path) -> Callable[..., Path]:
    """Return a function that renders for a checkpoint."""

    def run(checkpoint: Path, *options: str) -> Path:
        out = tmp_path / "out"
        scaffold_cli("new", "bagel", "--checkpoint", checkpoint, "--patch", "--out", out, *options).success()
        return out

    return run


def defaults(out: Path) -> dict[str, Any]:
    """Return the defaults of the configuration class."""
    tree = ast.parse((out / MODEL).read_text(encoding="utf-8"))
    config = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "BagelTrainingConfig")
    fields = [node for node in config.body if isinstance(node, ast.AnnAssign)]
    return {ast.unparse(node.target): ast.literal_eval(node.value) for node in fields if node.value is not None}


def key_tables(out: Path) -> dict[str, Any]:
    """The tables of the model's file."""
    tree = ast.parse((out / MODEL).read_text(encoding="utf-8"))
    nodes = [node for node in tree.body if isinstance(node, ast.AnnAssign) and node.value is not None]
    return {ast.unparse(node.target): ast.literal_eval(node.value) for node in nodes if node.value is not None}


def compile_all(out: Path) -> None:
    """Compile every Python file, warnings being errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for path in out.rglob("*.py"):
            compile(path.read_text(encoding="utf-8"), path.name, "exec")


def test_sizes_are_the_checkpoints(render: Callable[..., Path], tiny_checkpoint: Callable[..., Path]) -> None:
    out = render(tiny_checkpoint())
    expected = {**LLM_CONFIG, "latent_patch_size": 2, "max_latent_size": 8, "latent_channel": 16, "vae_downsample": 8}
    found = defaults(out)
    assert {key: found[key] for key in expected} == expected
    assert "TimestepEmbedder(48, hidden)" in (out / MODEL).read_text()
    readme = (out / README).read_text()
    assert f"layers.{{0..{LAYERS - 1}}}.self_attn.q_proj.weight" in readme
    assert "{0..27}" not in readme


def test_only_what_depends_on_sizes_changes(
    render: Callable[..., Path],
    tiny_checkpoint: Callable[..., Path],
    default_tree: Path,
    tree_of: Callable[[Path], Any],
) -> None:
    before, after = tree_of(default_tree), tree_of(render(tiny_checkpoint()))
    assert sorted(before) == sorted(after)
    assert {path for path in before if before[path] != after[path]} == {
        *(MODEL, README, SCRIPT, SMOKE, f"{PACKAGE}/scaffold.toml", f"{PACKAGE}/scaffold.lock.toml"),
        *(path for path in before if before[path][0] == "link" and before[path] != after[path]),
    }


def test_rendered_tests_pass_for_other_sizes(
    render: Callable[..., Path], tiny_checkpoint: Callable[..., Path], kit_passes: Callable[..., None]
) -> None:
    kit_passes(render(tiny_checkpoint()))


def test_rendered_module_loads_that_very_checkpoint(
    render: Callable[..., Path],
    tiny_checkpoint: Callable[..., Path],
    kit_environment: Callable[..., dict[str, str]],
    warm_python: Callable[..., Any],
) -> None:
    checkpoint = tiny_checkpoint()
    out = render(checkpoint)
    code = (
        "import sys, torch\n"
        "from verl_omni.pipelines.bagel_flow_grpo.bagel_model import BagelForTraining\n"
        "module = BagelForTraining.from_pretrained(sys.argv[1], torch_dtype=torch.float32)\n"
        "print(sum(p.numel() for p in module.parameters()), len(module.layers))\n"
    )
    done = warm_python(["-c", code, checkpoint], env=kit_environment(out))
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split()[1] == str(LAYERS)


def test_language_model_configuration_inside_the_root(
    render: Callable[..., Path], tiny_checkpoint: Callable[..., Path]
) -> None:
    out = render(tiny_checkpoint(llm=None, root={**ROOT_CONFIG, "llm_config": LLM_CONFIG}))
    assert defaults(out)["rope_theta"] == LLM_CONFIG["rope_theta"]


def test_one_file_stands_for_itself(render: Callable[..., Path], tiny_checkpoint: Callable[..., Path]) -> None:
    out = render(tiny_checkpoint() / "ema.safetensors")
    assert 'files=("ema.safetensors",)' in (out / MODEL).read_text()


def test_path_of_the_checkpoint_is_not_in_the_output(
    render: Callable[..., Path], tiny_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    out = render(tiny_checkpoint(name="secret_place"))
    text = "".join(path.read_text() for path in out.rglob("*") if path.is_file())
    assert str(tmp_path) not in text


def test_unused_tensors_may_be_missing(render: Callable[..., Path], tiny_checkpoint: Callable[..., Path]) -> None:
    out = render(tiny_checkpoint({"language_model.lm_head.weight": None, "vit_pos_embed.pos_embed": None}))
    text = (out / MODEL).read_text()
    assert "lm_head" not in text
    assert "vit_pos_embed" not in text


@pytest.mark.parametrize("name", ["logit_scale", "step"])
def test_unused_tensor_at_the_top_is_left_out_by_name(
    render: Callable[..., Path], tiny_checkpoint: Callable[..., Path], name: str
) -> None:
    out = render(tiny_checkpoint({name: (1,)}))
    assert f'("{name}"' in (out / MODEL).read_text()


HOSTILE = [
    'evil"""; import os; """.w',
    "evil''';raise SystemExit(9)#.w",
    'evil"]; raise SystemExit(9) #.w',
    "evil{{ 7 * 7 }}.w",
    "evil{% raw %}.w",
    "evil{# comment.w",
    "evil\nraise SystemExit(9)\n.w",
    "evil\r\nraise SystemExit(9).w",
    "evil\\.w",
    "evil$(touch {place}).w",
    "evil`touch {place}`.w",
    "evil{0..3}.w",
    "evil{}.w",
    "evil\u2028raise SystemExit(9).w",
    "evil\u202e.w",
    "evil%s%(x)s.w",
    "évil.w",
]


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_stay_text(
    scaffold_cli: Callable[..., Any],
    tiny_checkpoint: Callable[..., Path],
    tmp_path: Path,
    name: str,
) -> None:
    place, out = tmp_path / "touched", tmp_path / "out"
    name = name.replace("{place}", str(place))
    checkpoint = tiny_checkpoint({name: (1,)})
    scaffold_cli("new", "bagel", "--checkpoint", checkpoint, "--patch", "--out", out).success()
    compile_all(out)
    for path in out.rglob("*.sh"):
        assert "evil" not in path.read_text()
        assert subprocess.run(["bash", "-n", path], check=False).returncode == 0
    names = key_tables(out)
    assert [source for source, _ in names["IGNORED_KEYS"] if name.startswith(source)] == [name.partition(".")[0] + "."]
    assert name.partition(".")[0] + "." not in dict(names["KEY_MAP"])
    assert not place.exists()


@pytest.mark.parametrize(
    "name", ["evil\n\n# Heading\n.w", "evil|cell.w", "evil`code.w", "evil<script>x</script>.w", "evil\r.w"]
)
def test_hostile_names_stay_in_their_cell_of_the_table(
    render: Callable[..., Path], tiny_checkpoint: Callable[..., Path], default_tree: Path, name: str
) -> None:
    text = (render(tiny_checkpoint({name: (1,)})) / README).read_bytes().decode()
    rows = [line for line in text.split("\n") if "evil" in line]
    assert len(rows) == 1
    assert len(re.findall(r"(?<!\\)\|", rows[0])) == 4
    assert "\r" not in text
    assert "<script>" not in re.sub(r"`[^`]*`", "", text)
    headings = [line for line in text.split("\n") if line.startswith("#")]
    expected = (default_tree / README).read_text()
    assert headings == [line for line in expected.split("\n") if line.startswith("#")]


def test_hostile_strings_of_configurations_are_not_rendered(
    render: Callable[..., Path], tiny_checkpoint: Callable[..., Path]
) -> None:
    evil = 'evil"""\n{{ 7 * 7 }}\nraise SystemExit(9)'
    out = render(
        tiny_checkpoint(
            llm={**LLM_CONFIG, "model_type": evil, evil: 1, "architectures": [evil]},
            root={**ROOT_CONFIG, "_name_or_path": evil, evil: evil, "tokenizer_class": evil},
        )
    )
    compile_all(out)
    assert not [path for path in out.rglob("*") if path.is_file() and "evil" in path.read_text()]
