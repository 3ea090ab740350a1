"""Packages in styles other than ours: one file, a dozen helper modules, sizes in nested classes; unseen names."""

from __future__ import annotations

import functools
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from installed import require

from scaffold.verify import contract_level
from scaffold.verify.catalogue import catalogue
from scaffold.verify.package import declared_lists, model_names, open_package
from scaffold.verify.rollout import level
from scaffold.verify.rollout.environment import Environment
from scaffold.verify.rollout.facts import NotEstablishedError
from scaffold.verify.rollout.level import make_plan

pytestmark = pytest.mark.upstream
further = functools.partial(pytest.param, marks=pytest.mark.table)  # one more row of what the rows before it show

FOLDER = Path(__file__).parent / "hand_written"
# What each has wrong, or does not have; everything else must have been measured.
PACKAGES: dict[str, tuple[set[str], set[str]]] = {
    "one_file": (
        {"config-round-trip", "prompt-ids", "prompt-containers", "validation-output", "window-per-step"},
        {
            *("fsdp1-bf16", "lora-learns", "lora-save-load", "lora-starts-at-base", "lora-switch", "lora-targets"),
            *("lora-update", "layer-prefixes"),
        },
    ),
    "many_files": (
        {"config-round-trip", "prompt-ids", "weights-round-trip", "validation-output", "window-per-step"},
        set(),
    ),
    # Sizes are defaults of dataclasses in a dataclass, into which the file's sections are spread; weights are torch's.
    "nested_sizes": ({"config-round-trip", "prompt-containers"}, set()),
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
        further(
            "mask = F.pad(text_mask.bool()", "mask = F.pad(torch.ones_like(text_mask).bool()", "padding-invariance"
        ),
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


def test_a_gradient_that_is_cut_on_one_of_three_ways_is_found(
    results: Any, hand_written: Callable[[str], Path], edit: Callable[..., None]
) -> None:
    """Queries, keys and values are one projection: without the keys' part each parameter still has a gradient."""
    package, names = hand_written("embeddings"), ("gradient-paths", "trainable-parameters", "gradient-checkpointing")
    assert {check.status for check in results(package, *names).values()} == {"pass"}
    edit(package / "quilt.py", "turned(k, places", "turned(k.detach(), places")
    found = results(package, *names)
    assert [name for name, check in found.items() if check.status == "fail"] == ["gradient-paths"]
    assert re.search(r"misses \d+% of what \S+ does", found["gradient-paths"].reason), found
    assert "rows.1.look the last" in found["gradient-paths"].reason


OF_A_LIBRARY = """class QuiltSizes(PretrainedConfig):
    model_type = "quilt"

    def __init__(self, spans=(32, 32, 32), heads=16, depth=20, patch_size=2, in_channels=4, **more):
        self.width, self.caption_dim = more.pop("width", 1536), more.pop("caption_dim", 1024)
        self.spans, self.heads, self.depth = tuple(spans), heads, depth
        self.patch_size, self.in_channels = patch_size, in_channels
        super().__init__(**more)


"""


def test_sizes_in_a_configuration_of_a_library_in_a_folder_below(
    results: Any, hand_written: Callable[[str], Path], edit: Callable[..., None]
) -> None:
    require("transformers")
    package = hand_written("embeddings")
    file, text = package / "quilt.py", (package / "quilt.py").read_text(encoding="utf-8")
    own = text[text.index("@dataclasses.dataclass\n") : text.index("def _home(")]
    edit(file, own, OF_A_LIBRARY)
    edit(file, "from torch import nn\n", "from torch import nn\nfrom transformers import PretrainedConfig\n")
    edit(
        file,
        "QuiltSizes.from_model_path(model_path)",
        'QuiltSizes.from_pretrained(model_path, subfolder="transformer")',
    )
    edit(
        file,
        "self.config.save_pretrained(save_directory)",
        "self.config.save_pretrained(f'{save_directory}/transformer')",
    )
    edit(package / "verify.toml", '"config.json"]', '"transformer/config.json"]')
    found = results(package, "forward", "config-round-trip", "gradient-paths")
    told = {name: check.reason for name, check in found.items()}
    assert {check.status for check in found.values()} == {"pass"}, told
    edit(
        file,
        "self.spans, self.heads, self.depth = tuple(spans), heads, depth",
        "self.spans, self.heads, self.depth = (8, 8, 8), heads, depth + 1",
    )
    assert results(package, "config-round-trip")["config-round-trip"].status == "fail"


def test_branches_with_the_same_inputs_are_one_failure(
    results: Any, hand_written: Callable[[str], Path], edit: Callable[..., None]
) -> None:
    package = hand_written("embeddings")
    same = '"text": negative_prompt_embeds, "text_mask": negative_prompt_embeds_mask}'
    edit(package / "quilt.py", same, same.replace("negative_", ""))
    found = results(package, "cfg-branches", "cfg-formula")
    assert found["cfg-branches"].status == "fail"
    assert (found["cfg-formula"].status, "see cfg-branches" in found["cfg-formula"].reason) == ("skip", True)


@pytest.mark.parametrize("table", ["Frozen({})", further("nn.Embedding.from_pretrained(torch.zeros({}), freeze=True)")])
def test_a_frozen_table_that_loading_fills(
    table: str, results: Any, hand_written: Callable[[str], Path], edit: Callable[..., None]
) -> None:
    file = hand_written("one_file") / "__init__.py"
    edit(file, 'nn.Embedding(g["cells"] ** 2, g["d"])', table.format('g["cells"] ** 2, g["d"]'))
    edit(file, "class Row(nn.Module):", FROZEN + "class Row(nn.Module):")
    found = results(file.parent, "inputs-matter", "loading")
    assert {name: check.reason for name, check in found.items() if check.status == "fail"} == {}
    edit(file, "+ self.spots(spots)\n", "+ 0 * self.spots(spots)\n")
    found = results(file.parent, "inputs-matter")["inputs-matter"]
    assert (found.status, "latents in other places" in found.reason) == ("fail", True), found.reason


FROZEN = """class Frozen(nn.Module):
    def __init__(self, rows, width):
        super().__init__()
        self.register_buffer("weight", torch.zeros(rows, width))

    def forward(self, places):
        return self.weight[places]


"""
BRANCHES = ("cfg-branches", "cfg-formula", "cfg-settings", "step-per-sample", "same-calls")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{**shared, "ids": None, "real": None}', "dict(shared)"),
        (
            """        v = module(**model_inputs)[0].float()
        if scale > 1.0:
            u = module(**negative_model_inputs)[0].float()
""",
            """        if scale <= 1.0:
            v = module(**model_inputs)[0].float()
        else:
            empty = {"ids": torch.zeros_like(model_inputs["ids"]), "real": torch.zeros_like(model_inputs["real"])}
            both = zip(model_inputs.values(), {**model_inputs, **negative_model_inputs, **empty}.values())
            v, u = module(**dict(zip(model_inputs, map(torch.cat, both))))[0].float().chunk(2)
""",
        ),
    ],
    ids=["some of the positive ones", "one call of both"],
)
def test_other_ways_to_call_without_the_prompt_are_sound(
    before: str, after: str, results: Any, hand_written: Callable[[str], Path], edit: Callable[..., None]
) -> None:
    package = hand_written("one_file")
    edit(package / "__init__.py", before, after)
    if "empty" in after:  # what the call is given, the branch is made of
        edit(
            package / "__init__.py",
            '{**shared, "ids": None, "real": None}',
            '{**shared, "ids": torch.zeros_like(ids), "real": torch.zeros_like(real)}',
        )
    found = results(package, *BRANCHES)
    assert {name: check.reason for name, check in found.items() if check.status == "fail"} == {}
    assert found["cfg-formula"].status == "pass"


def test_a_prompt_in_the_call_without_it_is_found(
    results: Any, hand_written: Callable[[str], Path], edit: Callable[..., None]
) -> None:
    """Both branches are made rightly, and the step mixes them."""
    package = hand_written("embeddings")
    call = "cls.forward(module, model_config, {})"
    mixed = '{**negative_model_inputs, "text_mask": model_inputs["text_mask"]}'
    edit(package / "quilt.py", f"u = {call.format('negative_model_inputs')}", f"u = {call.format(mixed)}")
    found = results(package, "cfg-branches")["cfg-branches"]
    assert found.status == "fail"
    assert "a step gives the call without the prompt text_mask of the one with it" in found.reason


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


def test_a_choice_that_trains_no_layer_is_none(
    results: Any, hand_written: Callable[[str], Path], edit: Callable[..., None]
) -> None:
    package = hand_written("one_file")
    edit(
        package / "__init__.py",
        "module.float().requires_grad_(True)",
        "module.float().requires_grad_(False).leave.requires_grad_(True)",
    )
    found = results(package, "trainable-parameters")["trainable-parameters"]
    assert found.status == "fail"
    assert "nothing of the 2 layers trains, such as rows.0; what does: leave.bias" in found.reason


@pytest.mark.parametrize(
    ("taken", "told"),
    [
        ("found", None),
        ("found[:1]", "two files and an index, all but the first is lost"),
        further("found[-1:]", "two files and an index, all but the last is lost"),
        further("[f for f in found if len(found) == 1]", None),
    ],
)
def test_a_loader_of_several_files_reads_all_of_them(
    taken: str, told: str | None, results: Any, hand_written: Callable[[str], Path], edit: Callable[..., None]
) -> None:
    package = hand_written("one_file")
    read = 'held = load_file(os.path.join(model_path, "parts", "slab.safetensors"))'
    several = (
        'found = sorted(__import__("glob").glob(os.path.join(model_path, "parts", "*.safetensors")))\n'
        f"        held = {{k: v for f in {taken} for k, v in load_file(f).items()}}"
    )
    edit(package / "__init__.py", read, several)
    found = results(package, "loading")["loading"]
    assert found.status == ("pass" if told is None else "fail"), found.reason
    assert (told or "") in found.reason


@pytest.mark.parametrize("more", ["", "\n        model_config.local_path / 'scheduler'"])
def test_the_adapter_builds_its_scheduler_itself(
    more: str, results: Any, hand_written: Callable[[str], Path], edit: Callable[..., None]
) -> None:
    """Levels that ``set_timesteps`` alone would not set; where a checkpoint is needed, there is none to build it of."""
    package = hand_written("one_file")
    built = '        cls.set_timesteps(scheduler, model_config, "cpu")\n        return scheduler\n'
    edit(package / "__init__.py", built, f"        cls.fill(scheduler, model_config){more}\n        return scheduler\n")
    set_by = "    def set_timesteps(cls, scheduler, model_config, device):\n"
    body = "cls.fill(scheduler, model_config)" if more else "raise NotImplementedError"
    fill = "    @classmethod\n    def fill(cls, scheduler, model_config, device=None):\n"
    edit(package / "__init__.py", set_by, f"{set_by}        {body}\n\n{fill}")
    found = results(package, "rollout-log-probs")["rollout-log-probs"]
    assert found.status == "pass", found.reason


def test_two_dtypes_in_a_sharded_unit_are_named(
    results: Any, hand_written: Callable[[str], Path], edit: Callable[..., None]
) -> None:
    package = hand_written("nested_sizes")
    edit(
        package / "fabric.py",
        "class Ply(nn.Module):\n",
        "class Ply(nn.Module):\n"
        "    def _apply(self, fn, recurse=True):\n"
        "        super()._apply(fn, recurse)\n"
        "        next(self.parameters()).data = next(self.parameters()).data.float()\n"
        "        return self\n\n",
    )
    found = results(package, "fsdp1-bf16")["fsdp1-bf16"]
    assert found.status == "fail"
    assert re.search(
        r"\.0\.[\w.]+ is float32 and [\w.]+\.0\.[\w.]+ is bfloat16, and a sharded unit has one", found.reason
    )


def test_an_input_that_the_wrapper_casts_is_named(
    results: Any, hand_written: Callable[[str], Path], edit: Callable[..., None]
) -> None:
    """A timestep that the module itself turns into waves has three digits left under FSDP2 in bfloat16."""
    package = hand_written("nested_sizes")
    edit(package / "training.py", '"hour": torch.cat([f.sin(), f.cos()], -1)', '"hour": t')
    edit(
        package / "fabric.py",
        "        x = x + self.hour(hour.to(dtype))[:, None]\n",
        "        f = hour.float()[:, None] * torch.logspace(0, 2, 16, device=hour.device)\n"
        "        x = x + self.hour(torch.cat([f.sin(), f.cos()], -1).to(dtype))[:, None]\n",
    )
    found = results(package, "fsdp2-bf16")["fsdp2-bf16"]
    assert found.status == "fail", found
    assert "the wrapper casts hour of Fabric.forward from float32 to bfloat16" in found.reason


@pytest.mark.parametrize("source", ['os.environ["LOCAL_RANK"]', further("p.seed")])
def test_windows_that_do_not_follow_the_training_step_are_told_as_that(
    source: str, results: Any, hand_written: Callable[[str], Path], edit: Callable[..., None]
) -> None:
    package = hand_written("one_file")
    edit(package / "__init__.py", 'int(os.environ["LOCAL_RANK"])', f"int({source})")
    found = results(package, "window-per-step")["window-per-step"]
    assert found.status == "fail"
    assert "they follow the request, its seed say, or the rank and not the training step" in found.reason
    assert "never trained" not in found.reason


def test_files_of_the_model_are_found_by_the_architecture_that_a_launch_script_names(
    hand_written: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(level, "gather_facts", lambda *_: {})
    folder = hand_written("one_file")
    package = open_package(folder)
    assert model_names(package) == ["slab"]
    script = folder.parents[2] / "examples" / "flowgrpo_trainer" / "slabs" / "run.sh"
    script.parent.mkdir(parents=True)
    script.write_text("ARCHITECTURE=OmniSlabForConditionalGeneration\n")
    script.parent.with_name("other").mkdir()
    (script.parent.with_name("other") / "run.sh").write_text("ARCHITECTURE=OmniSlabForConditionalGenerationTwo\n")
    assert model_names(package) == ["slab", "slabs"]
    builders = "build_slab_tiny_random.py and tests/special_e2e/build_slabs_tiny_random.py are missing"
    with pytest.raises(NotEstablishedError, match=builders):
        make_plan(package, Environment(tmp_path, "0.30.0"), None, tmp_path)


def test_a_function_of_the_preprocessor_that_takes_other_arguments_is_a_skip(
    results: Any, copied: Path, edit: Callable[..., None]
) -> None:
    script = copied.parents[2] / "examples" / "flowgrpo_trainer" / "data_process" / "bagel_ocr.py"
    with script.open("a") as file:
        file.write("\n_whole = tokenize_bagel_prompt\n\ndef tokenize_bagel_prompt(tokenizer, text):\n")
        file.write("    return _whole(tokenizer, text, 512)\n")
    found = results(copied, "prompt-preprocessor")["prompt-preprocessor"]
    assert found.status == "skip"
    assert "cannot be given (tokenizer, text, max_length)" in found.reason


@pytest.mark.parametrize("ids", ["[151644, 198]", further("(151644, 198)")])
def test_ids_that_the_package_states_beyond_a_tiny_vocabulary_are_no_fault_of_it(
    ids: str, results: Any, hand_written: Callable[[str], Path], edit: Callable[..., None]
) -> None:
    package = hand_written("one_file")
    file = package / "__init__.py"
    edit(file, "PIXELS = 16\n", f"PIXELS = 16\nEMPTY = {ids}\n")
    column = 'prompts = [torch.as_tensor(list(getattr(p, "data", p))) for p in column]'
    edit(file, column, column.replace('list(getattr(p, "data", p))', '[*EMPTY, *getattr(p, "data", p)]'))
    found = results(package, "forward", "determinism")
    assert {check.status for check in found.values()} == {"skip"}
    assert "__init__.py states ids up to 151644, the tiny model's vocabulary has" in found["forward"].reason
    assert "--checkpoint DIR" in found["forward"].reason


def test_an_index_beyond_a_table_is_a_fault_where_the_source_states_no_such_id(
    results: Any, hand_written: Callable[[str], Path], edit: Callable[..., None]
) -> None:
    package = hand_written("one_file")
    edit(package / "__init__.py", "self.words(ids)", "self.words(ids + 10**6)")
    assert results(package, "forward")["forward"].status == "fail"


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
        further("cls, scheduler, model_config", "fail", "the engine passes scheduler, model_config, device"),
        further(
            *("cls, *, scheduler, model_config, device", "fail"),
            "takes scheduler, model_config, device; the engine passes",
        ),
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
