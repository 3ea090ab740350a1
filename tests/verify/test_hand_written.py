"""Packages in styles other than ours: one file, a dozen helper modules, sizes in nested classes; unseen names."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaffold.verify import contract_level
from scaffold.verify.catalogue import catalogue
from scaffold.verify.package import declared_lists, open_package
from scaffold.verify.run import verify

pytestmark = pytest.mark.upstream

FOLDER = Path(__file__).parent / "hand_written"
# What each has wrong, or does not have; everything else must have been measured.
PACKAGES: dict[str, tuple[set[str], set[str]]] = {
    "one_file": (
        {"prompt-ids", "prompt-containers", "validation-output", "window-per-step"},
        {
            *("fsdp1-bf16", "lora-learns", "lora-save-load", "lora-starts-at-base", "lora-switch", "lora-targets"),
            *("lora-update", "layer-prefixes", "config-round-trip"),
        },
    ),
    "many_files": (
        {"prompt-ids", "weights-round-trip", "validation-output", "window-per-step"},
        {"config-round-trip"},
    ),
    # Sizes are defaults of dataclasses in a dataclass, into which the file's sections are spread; weights are torch's.
    "nested_sizes": ({"prompt-containers"}, {"config-round-trip"}),
}
# What needs a rollout, or the list of a script, which the package of embeddings has not.
EMBEDDINGS_LEFT = {"layer-prefixes", "lora-targets", "prompt-containers", "rollout-log-probs", "window-alignment"}
EVERYWHERE = {"fsdp2-nccl", "prompt-preprocessor"}


@pytest.fixture
def hand_written(tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that copies a package and gives its folder."""

    def copy(style: str) -> Path:
        shutil.copytree(FOLDER / style, tmp_path / style, ignore=shutil.ignore_patterns("__pycache__"))
        return next((tmp_path / style / "verl_omni" / "pipelines").iterdir())

    return copy


@pytest.mark.parametrize("style", PACKAGES)
def test_it_is_driven_through_every_contract(style: str, results: Any, hand_written: Callable[[str], Path]) -> None:
    found = results(hand_written(style))
    wrong, left = PACKAGES[style]
    told = {name: f"{check.status}: {check.reason}" for name, check in found.items() if check.status != "pass"}
    assert {name for name, check in found.items() if check.status == "fail"} == wrong, told
    skipped = {name for name, check in found.items() if check.status == "skip"}
    assert skipped - {"schedule-diffusers-0.40.0"} == left | EVERYWHERE, told
    assert found.keys() == {entry.id for entry in catalogue()}


def test_a_module_that_runs_on_ids_where_there_are_no_embeddings(
    results: Any, hand_written: Callable[[str], Path], edit: Callable[..., None]
) -> None:
    package = hand_written("one_file")
    file = package / "__init__.py"
    edit(file, 'getattr(module, "module", module).g["cells"]', "8")
    edit(
        file,
        'return {**shared, "ids": ids,',
        'return {**shared, "ids": ids if prompt_embeds is None else prompt_embeds,',
    )
    found = results(package, "forward")["forward"]
    assert found.status == "pass", found.reason


def test_a_package_that_takes_embeddings_is_driven(results: Any, hand_written: Callable[[str], Path]) -> None:
    """Image-shaped latents, time from noise to image, axes that share out a head, samples taken one by one."""
    found = results(hand_written("embeddings"))
    told = {name: f"{check.status}: {check.reason}" for name, check in found.items() if check.status != "pass"}
    assert {name for name, check in found.items() if check.status == "fail"} == {"registration"}, told  # half a package
    assert told.keys() >= EMBEDDINGS_LEFT
    passed = {name for name, check in found.items() if check.status == "pass"}
    assert passed >= {
        *("forward", "padding-invariance", "inputs-matter", "sde-step", "step-per-sample", "batch-equals-singles"),
        *("loading", "weights-round-trip", "config-round-trip", "gradient-checkpointing", "fsdp2-gloo", "cfg-branches"),
    }, told
    assert "embeddings" in found["prompt-containers"].reason


@pytest.mark.parametrize(
    ("before", "after", "contract"),
    [
        ("stitches[..., 0] = text_mask.sum(1)[:, None]", "stitches[..., 0] = text.shape[1]", "padding-invariance"),
        ("mask = F.pad(text_mask.bool()", "mask = F.pad(torch.ones_like(text_mask).bool()", "padding-invariance"),
        ('"text_mask": negative_prompt_embeds_mask}', '"text_mask": prompt_embeds_mask}', "forward"),
        ("t = torch.linspace(0, 1, m", "t = 0.5 * torch.linspace(0, 1, m", None),
        ('"when": timesteps[:, step]}', '"when": 0 * timesteps[:, step]}', "inputs-matter"),
        ("timestep=t[:, step], prev", "timestep=t[:1, step], prev", "step-per-sample"),
    ],
)
def test_a_mistake_in_it_is_found(
    before: str,
    after: str,
    contract: str | None,
    results: Any,
    hand_written: Callable[[str], Path],
    edit: Callable[..., None],
) -> None:
    package = hand_written("embeddings")
    edit(package / "quilt.py", before, after)
    found = results(package, "forward", "padding-invariance", "inputs-matter", "step-per-sample", "sde-step")
    failed = {name: check.reason for name, check in found.items() if check.status == "fail"}
    assert (contract in failed) if contract else not failed, failed


def test_a_checkpoint_in_the_layout_of_diffusers(
    results: Any, hand_written: Callable[[str], Path], tmp_path: Path
) -> None:
    """Sizes come from ``transformer/config.json``, the schedule from the folder beside it."""
    given = tmp_path / "checkpoint"
    sizes = {"width": 192, "heads": 4, "depth": 3, "in_channels": 8, "caption_dim": 64, "spans": [16, 16, 16]}
    for name, content in (("transformer/config.json", sizes), ("scheduler/scheduler_config.json", {"shift": 2.0})):
        (given / name).parent.mkdir(parents=True)
        (given / name).write_text(json.dumps(content), encoding="utf-8")
    report = verify(hand_written("embeddings"), checkpoint=given, select=("forward", "sde-step"))
    assert {check.id: check.status for check in report.checks} == {"forward": "pass", "sde-step": "pass"}
    assert "(B, 8, 4, 6)" in report.checks[0].reason


def test_a_denoiser_of_a_library_is_no_fault(
    results: Any, hand_written: Callable[[str], Path], edit: Callable[..., None]
) -> None:
    """The engine loads it by itself, and nothing of it is the package's."""
    package = hand_written("embeddings")
    edit(package / "__init__.py", "from .quilt import Quilt, QuiltTrainer", "from .quilt import QuiltTrainer")
    edit(package / "__init__.py", '__all__ = ["Quilt", "QuiltTrainer"]', '__all__ = ["QuiltTrainer"]')
    edit(package / "quilt.py", "(NonDiffusersModelBase)", "(nn.Module)")
    own = "from verl_omni.pipelines.non_diffusers_model_base import NonDiffusersModelBase\n"
    edit(package / "quilt.py", own, "")
    edit(package / "quilt.py", "def build_module(", "def made(")
    found = results(package, "forward", "signatures")
    assert found["forward"].status == "skip", found["forward"].reason
    assert "builds no module of its own" in found["forward"].reason


def test_a_second_mistake_is_seen_behind_the_first(
    results: Any, hand_written: Callable[[str], Path], edit: Callable[..., None]
) -> None:
    """Text that stands further back where others are longer, and then also what the longer ones say."""
    package = hand_written("one_file")
    file = package / "__init__.py"
    steps = "steps = torch.arange(1, ids.shape[1] + 1, device=ids.device)"
    edit(file, steps, "steps = ids.shape[1] - torch.arange(ids.shape[1])")
    first = results(package, "padding-invariance")["padding-invariance"]
    assert first.status == "fail"
    assert "differs" in first.reason
    assert "what a longer prompt beside it says" not in first.reason
    entered = "x = self.enter(z.to(self.enter.weight.dtype))"
    edit(file, entered, f"{entered} + (0 if ids is None else 1e-3 * ids.float().mean())")
    second = results(package, "padding-invariance")["padding-invariance"]
    assert "what a longer prompt beside it says changes the velocity" in second.reason


def test_windows_that_lose_log_probs_do_not_hide_wrong_timesteps(
    results: Any, hand_written: Callable[[str], Path], edit: Callable[..., None]
) -> None:
    package = hand_written("one_file")
    edit(package / "__init__.py", "torch.stack(tape.lp, 1)", "torch.stack(tape.lp[begin:] or tape.lp[:1], 1)")
    edit(package / "__init__.py", "tape.inner.timesteps[begin:end][None]", "tape.inner.timesteps[: end - begin][None]")
    found = results(package, "window-alignment")["window-alignment"]
    assert found.status == "fail"
    assert "of its log-probs at" in found.reason
    assert "of other steps at" in found.reason


def test_an_adapter_that_makes_text_of_all_ids_has_a_tokenizer(
    results: Any, hand_written: Callable[[str], Path], edit: Callable[..., None]
) -> None:
    """The agent loop sends ids alone, so nothing obliges an adapter to look for a text beside them."""
    package = hand_written("one_file")
    asked = "        p = req.sampling_params\n"
    edit(package / "__init__.py", asked, asked + '        self.tokenizer.decode(req.prompts[0]["prompt_token_ids"])\n')
    found = results(package, "rollout-log-probs", "rollout-noise")
    assert {name: check.status for name, check in found.items()} == {
        "rollout-log-probs": "pass",
        "rollout-noise": "pass",
    }


def test_a_parameter_that_is_joined_of_several_tensors(
    results: Any, hand_written: Callable[[str], Path], edit: Callable[..., None]
) -> None:
    package = hand_written("one_file")
    file = package / "__init__.py"
    held = 'held = load_file(os.path.join(model_path, "parts", "slab.safetensors"))\n'
    joined = (
        "        ones = {k for k in held if k.endswith('attn_in.weight.1')}\n"
        "        parts = {k[:-2]: [held.pop(f'{k[:-1]}{i}') for i in (1, 2, 3)] for k in ones}\n"
        "        held |= {k: torch.cat(v) for k, v in parts.items()}\n"
    )
    edit(file, held, held + joined)
    saved = "        save_file(out,"
    split = (
        "        whole = {k: out.pop(k).chunk(3) for k in list(out) if k.endswith('attn_in.weight')}\n"
        "        out |= {f'{k}.{i}': p.clone() for k, v in whole.items() for i, p in enumerate(v, 1)}\n"
    )
    edit(file, saved, split + saved)
    found = results(package, "loading", "loading-memory", "weights-round-trip")
    assert found["loading"].status == "pass", found["loading"].reason
    assert found["loading-memory"].value == pytest.approx(0.3, abs=0.2)
    edit(file, "(named, assign=True, strict=True)", "(named, assign=True, strict=False)")
    assert "a surplus tensor" in results(package, "loading")["loading"].reason


@pytest.mark.parametrize(
    ("taken", "status", "told"),
    [
        ("cls, noise, settings, place, more=None", "pass", "methods of the training adapter"),
        ("cls, model_config, scheduler, device", "fail", "takes model_config, scheduler in another place"),
        ("cls, scheduler, model_config", "fail", "the engine passes scheduler, model_config, device"),
        ("cls, *, scheduler, model_config, device", "fail", "takes scheduler, model_config, device; the engine passes"),
    ],
)
def test_arguments_are_compared_by_their_places(
    taken: str, status: str, told: str, results: Any, hand_written: Callable[[str], Path], edit: Callable[..., None]
) -> None:
    package = hand_written("one_file")
    edit(
        package / "__init__.py",
        "def set_timesteps(cls, scheduler, model_config, device):",
        f"def set_timesteps({taken}):",
    )
    found = results(package, "signatures")["signatures"]
    assert (found.status, told in found.reason) == (status, True), found.reason


@pytest.mark.parametrize(
    ("given", "prefixes"),
    [
        ("model.fsdp_layer_prefixes=\"['rows.']\"", ["rows."]),
        ("rollout.layered_summon=True", ["transformer_blocks."]),
        ("rollout.layered_summon=False", None),
    ],
)
def test_targets_and_prefixes_of_a_script_of_an_architecture_in_a_constant(
    given: str, prefixes: Any, hand_written: Callable[[str], Path], edit: Callable[..., None]
) -> None:
    package = hand_written("one_file")
    text = (package / "__init__.py").read_text(encoding="utf-8")
    name = re.findall(r'\.register\("(\w+)"', text)[0]
    constant = text.replace(f'.register("{name}"', ".register(NAMED").replace(
        "PIXELS = 16", f'PIXELS = 16\nNAMED = "{name}"'
    )
    (package / "__init__.py").write_text(constant, encoding="utf-8")
    script = package.parents[2] / "examples" / "run.sh"
    script.parent.mkdir()
    targets = "actor_rollout_ref.model.target_modules=\"['mix']\""
    script.write_text(f"train model.architecture={name} {targets} actor_rollout_ref.{given}\n", encoding="utf-8")
    expected = {"target_modules": ["mix"]} | ({"fsdp_layer_prefixes": prefixes} if prefixes else {})
    assert declared_lists(open_package(package)) == expected


def test_a_large_model_is_never_built_by_accident(results: Any, copied: Path, edit: Callable[..., None]) -> None:
    """Its constructor refuses every small size: the message names the size and what sets it."""
    anchor = "    @property\n    def head_dim(self)"
    check = "    def __post_init__(self):\n        if self.hidden_size < 3584:\n            raise ValueError\n\n"
    edit(copied / "bagel_model.py", anchor, check + anchor)
    found = results(copied, "forward", "determinism")
    assert (found["forward"].status, found["determinism"].status) == ("fail", "skip")
    assert "at most 5,000,000 are built; most of it hangs on hidden_size = 3584" in found["forward"].reason
    assert "--checkpoint DIR with a small configuration sets it" in found["forward"].reason


def test_a_constructor_that_never_ends_is_a_failure_of_forward(
    results: Any, copied: Path, edit: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    begins = "        super().__init__()\n        self.config = config\n"
    edit(copied / "bagel_model.py", begins, begins + "        while True:\n            pass\n")
    monkeypatch.setattr(contract_level, "SIZES_SECONDS", 1.0)
    found = results(copied, "forward", "signatures")
    assert found["signatures"].status == "pass"
    assert (found["forward"].status, "did not end within" in found["forward"].reason) == ("fail", True)
