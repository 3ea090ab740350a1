"""Packages with an imported denoiser or one of diffusers, as `new` renders them: `check` and `verify` pass.

Every pipeline of ``scaffold/presets/proofs`` is here or in `ELSEWHERE`, which is what lets `new` call it complete.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from installed import require

from scaffold.files.resources import PACKAGE_ROOT
from scaffold.grade.proof import Figures, figures, is_proven, name_of, proofs
from scaffold.render.names import model_name
from scaffold.verify.catalogue import catalogue
from scaffold.verify.package import Package
from scaffold.verify.result import CheckResult
from scaffold.verify.rollout.environment import OVERRIDE, find_environment
from scaffold.verify.rollout.facts import NotEstablishedError, ported_facts
from scaffold.verify.rollout.level import check_ids
from scaffold.verify.rollout.pins import packaged_versions
from scaffold.verify.run import verify
from tests.real_rollout import OF_COMPOSED, OF_DPO, OF_UPSTREAM, PERHAPS, assert_recorded

require("torch", "peft")

# Packages that the shared templates render whole, and the test that runs both levels on what `new` renders of them.
ELSEWHERE = {
    ("0.27.0rc1", "BagelPipeline"): "test_rollout.py",
    ("0.30.0", "BagelPipeline"): "test_rollout.py",
    ("0.30.0", "BagelPipeline edit"): "../edit/test_bagel_edit_rollout.py",
    ("0.30.0", "HiDreamO1ImagePipeline"): "test_verify_hidream_o1_image.py",
    ("0.30.0", "LancePipeline"): "../models/test_lance_rollout.py",
    ("0.30.0", "SenseNovaU1Pipeline"): "../models/test_sensenova_u1_rollout.py",
    ("0.32.0rc1", "BagelPipeline"): "test_rollout.py",
}
RECORDED = [(version, pipeline) for version, found in proofs().items() for pipeline in found]
PROVEN = [entry for entry in RECORDED if entry not in ELSEWHERE]
# One runs with every change, with words and pictures. `make rollout-table` runs all.
FIRST = ("0.30.0", "OmniGen2Pipeline")
ALWAYS = {("0.30.0", "OmniGen2Pipeline edit"), ("0.30.0", "FluxPipeline")}
# Of a later vllm-omni, `make test` renders these, and what the shared templates render.
FIRSTS = {FIRST[1], "OmniGen2Pipeline edit"}
# Of what diffusers loads, these: pictures, a video, an edit. test_target_hooks.py renders and checks every package.
EXPORTS = json.loads((PACKAGE_ROOT / "inspect/diffusers_exports.json").read_text(encoding="utf-8"))
LOADED = {name for exported in EXPORTS.values() for name in exported["pipelines"]}
LOADED -= {"FluxPipeline", "WanPipeline", "QwenImageEditPipeline"}


def _rendered(version: str, proven: str) -> bool:
    """Whether `make test` renders it."""
    own = version == FIRST[0] and proven.partition(" ")[0] not in LOADED
    return own or (version, proven) in ELSEWHERE or proven in FIRSTS


RENDERED = [pytest.param(*e, marks=[] if _rendered(*e) else pytest.mark.table) for e in RECORDED]
# What such a package has no part in, or no machine without GPUs can run.
SKIPPED = {
    *OF_COMPOSED,
    *OF_DPO,
    *OF_UPSTREAM,
    *PERHAPS,
    "cfg-formula",
    "fsdp2-nccl",
    "gradient-paths",
    "prompt-ids",
    "prompt-preprocessor",
    "requests-apart",
    "rollout-batch-v0",
    "rollout-control-cached-weights",
    "rollout-control-end-token",
    "rollout-declared",
    "rollout-negative-prompt",
    "rollout-row-mixed",
    "rollout-row-v1",
    "rollout-warm-up",
    "rollout-window-per-step",
    "rollout-without-references-log-prob",
    "rollout-without-references-velocity",
    "same-calls",
    "schedule-diffusers-0.38.0",
    "schedule-diffusers-0.40.0",
    "validation-output",
    "window-alignment",
    "window-noise",
}
# Where diffusers loads the denoiser, loading is VeRL-Omni's.
OF_LOADED = {"layer-prefixes", "loading", "loading-memory", "lora-save-load", "signatures"}


@pytest.fixture(scope="session")
def folder_of(rendered: Callable[..., Path]) -> Callable[..., Path]:
    """Render a package once; the result is its folder."""

    def render(version: str, proven: str) -> Path:
        pipeline, _, task = proven.partition(" ")
        name, more = name_of(pipeline), ("--task", task) if task else ()
        tree = rendered(name, "--pipeline", pipeline, "--vllm-omni", version, *more)
        return tree / f"verl_omni/pipelines/{name}_flow_grpo"

    return render


def skip_without_environment(version: str) -> None:
    if isinstance(found := find_environment(version), str):
        pytest.skip(found)


def takes_several(folder: Path) -> bool:
    """Whether the rollout adapter of a package says that it takes several requests at once."""
    return "supports_request_batch = True" in (folder / "vllm_omni_rollout_adapter.py").read_text(encoding="utf-8")


def of(checks: tuple[CheckResult, ...]) -> dict[str, CheckResult]:
    return {check.id: check for check in checks}


@pytest.mark.rollout
@pytest.mark.slow
@pytest.mark.upstream
@pytest.mark.parametrize(
    ("version", "pipeline"),
    [pytest.param(*e, marks=[] if e in ALWAYS else pytest.mark.rollout_table) for e in PROVEN],
)
def test_both_levels_pass(folder_of: Callable[..., Path], version: str, pipeline: str) -> None:
    skip_without_environment(version)
    folder = folder_of(version, pipeline)
    loaded = 'form = "diffusers"' in (folder / "scaffold.lock.toml").read_text(encoding="utf-8")
    checks = verify(folder, level="rollout").checks
    found = of(checks)
    assert set(found) == {*[entry.id for entry in catalogue()], *check_ids()}
    one_by_one = {name for name in found if name.startswith("rollout-together-") and not takes_several(folder)}
    skipped = SKIPPED | one_by_one | (OF_LOADED if loaded else set())
    allowed = {name: ("pass", "skip") if name in skipped else ("pass",) for name in found}
    wrong = {n: f"{c.status} {c.value} {c.reason}" for n, c in found.items() if c.status not in allowed[n]}
    assert wrong == {}
    # What the contract level leaves to the real loop has been seen there.
    for name in ("rollout-validation", "rollout-validation-plain", "rollout-window-alignment", "rollout-window-noise"):
        assert found[name].status == "pass", found[name].reason
    # What passes has been measured: the deliberate mistakes are seen, and nothing is compared with itself.
    assert "modules moved" in found["lora-learns"].reason
    assert found["rollout-control-reversed-prompt"].value is not None
    for name in ("rollout-without-references-log-prob", "rollout-without-references-velocity"):
        assert found[name].status == ("pass" if pipeline.endswith(" edit") else "skip"), found[name].reason
    assert f"vllm-omni {version}" in found["rollout-engine-float32"].reason
    assert_recorded(version, pipeline, checks)
    recorded = figures().get(version, {}).get(pipeline, Figures())
    assert (recorded.passed or 0) <= sum(check.status == "pass" for check in checks)


def test_every_proof_names_the_test_that_gives_it() -> None:
    for version, pipeline in ELSEWHERE:
        text = (Path(__file__).parent / ELSEWHERE[version, pipeline]).read_text(encoding="utf-8")
        assert version in {*packaged_versions(), *re.findall(r'^VERSION\b.* = "([^"]+)"', text, re.MULTILINE)}
        assert "pytest.mark.rollout" in text


@pytest.mark.upstream
@pytest.mark.parametrize(("version", "pipeline"), RENDERED)
def test_it_is_complete_and_clean(
    folder_of: Callable[..., Path], scaffold_cli: Callable[..., Any], version: str, pipeline: str
) -> None:
    folder = folder_of(version, pipeline)
    assert 'value = "complete"' in (folder / "scaffold.lock.toml").read_text(encoding="utf-8")
    readme = next(folder.parents[2].glob("examples/*/*/README.md")).read_text(encoding="utf-8")
    assert "partial" not in readme
    scaffold_cli("check", folder).success()
    # Where samples of a call are known to get what they get alone, requests share calls, too, and scripts bound them.
    common = (folder / "common.py").read_text(encoding="utf-8")
    # Experts are chosen by what rounding decides; a denoiser reads what is set for the whole process.
    alone = "LingBot" in pipeline or pipeline.startswith("MingImage")
    several = "CallPlan(" not in common or ("stacked=True" in common and not alone)
    assert takes_several(folder) is several
    scripts = [*folder.parents[2].glob("examples/*/*/run_*.sh"), *folder.parents[2].glob("tests/special_e2e/*.sh")]
    assert len(scripts) == 2
    assert {"rollout.max_num_seqs=" in script.read_text(encoding="utf-8") for script in scripts} == {several}
    told = "one that fails fails alone" if several else "The rollout makes one request at a time: "
    assert told in " ".join(readme.split())


RUNTIME = "../flow_grpo_runtime/"
BUGS = {
    "trainable-parameters": (
        "OmniGen2Pipeline",
        RUNTIME + "stepped_training.py",
        "parameter.data = parameter.data.float()",
        "parameter.data = parameter.data.bfloat16()",
    ),
    "rollout-log-probs": (
        "OmniGen2Pipeline",
        RUNTIME + "stepped_training.py",
        "prev_sample=following,",
        "prev_sample=sample,",
    ),
    # The noise levels of the first sample for all of a micro-batch.
    "step-per-sample": (
        "OmniGen2Pipeline",
        RUNTIME + "training.py",
        "carry_levels(scheduler, own, velocity.device)",
        "carry_levels(scheduler, levels[0], velocity.device)",
    ),
    "weights-round-trip": (
        "OmniGen2Pipeline",
        RUNTIME + "checkpoint.py",
        "files.setdefault(path, {})[key] = tensor.detach().contiguous()",
        "files.setdefault(path, {})[key] = 1.5 * tensor.detach().contiguous()",
    ),
    "gradient-checkpointing": (
        "OmniGen2Pipeline",
        RUNTIME + "module.py",
        "        NonDiffusersModelBase.enable_gradient_checkpointing(self, gradient_checkpointing_func)\n",
        "",
    ),
    # Branches of an edit in another order than that in which the rollout made them.
    "cfg-settings": (
        "OmniGen2Pipeline edit",
        RUNTIME + "replay.py",
        "{place: next(rows) for place in places}",
        "{place: next(rows) for place in places[::-1]}",
    ),
    # The denoiser's own `to` keeps some layers in float32, and FSDP1 shards no layer of two dtypes.
    "fsdp1-bf16": ("LingBotVideoPipeline", RUNTIME + "module.py", "    to = torch.nn.Module.to\n", ""),
}


@pytest.fixture(scope="module")
def broken(
    folder_of: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], dict[str, CheckResult]]:
    """Results of one copy that has all the bugs of a pipeline: one recording serves them."""
    import shutil

    skip_without_environment(FIRST[0])
    found: dict[str, dict[str, CheckResult]] = {}

    def results(pipeline: str) -> dict[str, CheckResult]:
        if pipeline not in found:
            folder = folder_of(FIRST[0], pipeline)
            copy = tmp_path_factory.mktemp("broken") / "out"
            shutil.copytree(folder.parents[2], copy)
            package = copy / folder.relative_to(folder.parents[2])
            bugs = {name: bug for name, (owner, *bug) in BUGS.items() if owner == pipeline}
            for file, right, wrong in bugs.values():
                path = package / file.format(model=model_name(pipeline.partition(" ")[0]))
                text = path.read_text(encoding="utf-8")
                assert text.count(right) == 1, (file, right, text.count(right))
                path.write_text(text.replace(right, wrong), encoding="utf-8")
            found[pipeline] = of(verify(package, select=(*bugs, "determinism")).checks)
        return found[pipeline]

    return results


@pytest.mark.rollout
@pytest.mark.slow
@pytest.mark.upstream
@pytest.mark.parametrize(
    "contract",
    # Only for this one a further pipeline is recorded; test_verify_hidream_o1_image.py has a bug that fails it, too.
    [pytest.param(name, marks=[pytest.mark.rollout_table] * (name == "fsdp1-bf16")) for name in BUGS],
)
def test_a_bug_fails_its_contract(broken: Callable[[str], dict[str, CheckResult]], contract: str) -> None:
    found = broken(BUGS[contract][0])
    assert found[contract].status == "fail", found[contract].reason
    assert found["determinism"].status == "pass", found["determinism"].reason


TABLES = 'self.__dict__["_tables"] = make(self)'
ROUNDED = (
    'self.__dict__["_tables"] = torch.utils._pytree.tree_map('
    "lambda table: table.bfloat16() if table.is_floating_point() else table, make(self))"
)
# What rounds more than the pipeline does in bf16, in one piece or once sharded.
ROUNDING = {
    "FSDP2 rounds the arguments of layers": (
        "BooguImagePipeline",
        ((RUNTIME + "module.py", "        ExactArguments.of(module, module._no_split_modules)\n", ""),),
        "the velocity once sharded is",
    ),
    "the module rounds its table of positions": (
        "BooguImagePipeline",
        ((RUNTIME + "module.py", TABLES, ROUNDED),),
        "the velocity of the whole module is",
    ),
    "parameters that the pipeline keeps in float32": (
        "LingBotVideoPipeline",
        ((RUNTIME + "module.py", "        WideParameters.of(module, kept)\n", ""),),
        "the velocity of the whole module is",
    ),
}


@pytest.mark.rollout
@pytest.mark.slow
@pytest.mark.upstream
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if owner == "BooguImagePipeline" else pytest.mark.rollout_table)
        for name, (owner, *_) in ROUNDING.items()
    ],
)
def test_rounding_that_the_rollout_does_not_do_is_seen(
    folder_of: Callable[..., Path], edit: Callable[..., None], tmp_path: Path, name: str
) -> None:
    import shutil

    skip_without_environment(FIRST[0])
    pipeline, edits, told = ROUNDING[name]
    folder = folder_of(FIRST[0], pipeline)
    package = tmp_path / "out" / folder.relative_to(folder.parents[2])
    shutil.copytree(folder.parents[2], tmp_path / "out")
    for file, right, wrong in edits:
        edit(package / file.format(model=model_name(pipeline)), right, wrong)
    (found,) = verify(package, select=("fsdp2-bf16",)).checks
    assert (found.status, told in found.reason) == ("fail", True), found.reason
    assert "from the rollout's own in bf16" in found.reason


@pytest.mark.upstream
def test_without_the_environment_the_reason_says_how_to_build_it(
    warm: None, folder_of: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(OVERRIDE, raising=False)
    monkeypatch.setattr("scaffold.verify.rollout.environment.cache_root", lambda: tmp_path)
    found = of(verify(folder_of(*FIRST), select=("forward", "registration", "lora-targets")).checks)
    assert found["registration"].status == "pass"
    assert found["lora-targets"].status == "skip"
    for name in ("forward", "lora-targets"):
        assert "omni-scaffold env rollout --vllm-omni 0.30.0" in found[name].reason


@pytest.mark.upstream
def test_a_package_whose_requests_nobody_can_send_is_not_run(tmp_path: Path) -> None:
    grade = {"missing": [], "refuses": "VeRL-Omni carries no sound (server.py:7)"}
    carried = Package(tmp_path, tmp_path, checkout=False, spec={"grade": grade}, upstream=None)
    with pytest.raises(NotEstablishedError, match=r"no request reaches a rollout: .*server\.py:7"):
        ported_facts(carried)


@pytest.mark.upstream
def test_what_the_files_say_now_decides_what_is_left_to_write(tmp_path: Path) -> None:
    """And not what was left when they were rendered."""
    spec = {"grade": {"missing": [{"key": "inputs", "what": "the arguments"}]}}
    package = Package(tmp_path, tmp_path, checkout=False, spec=spec, upstream=None)
    file = tmp_path / "adapter.py"
    file.write_text('raise NotImplementedError("the arguments: port own/pipe.py:12 of vllm-omni 0.30.0")\n')
    with pytest.raises(NotEstablishedError, match=r"still to be written: adapter\.py:1 the arguments, as own/pipe"):
        ported_facts(package)
    file.write_text("arguments = 1\n")
    assert ported_facts(package)["ported"]


def test_other_code_under_the_same_version_is_not_proven(upstream_copies: Any, tmp_path: Path) -> None:
    from scaffold.inspect import inspect_pipeline
    from scaffold.render import derive_names
    from scaffold.spec import SpecRequest
    from scaffold.target import profile_by_name
    from scaffold.upstream import locate

    version, pipeline = FIRST
    report = inspect_pipeline(locate(version), pipeline)
    copy = upstream_copies.Copy(locate(version), tmp_path / "upstream", ("omnigen2",))
    ported = "vllm_omni/diffusion/utils/tf_utils.py"

    def proven(profile: str = "main") -> bool:
        return is_proven(SpecRequest(report, derive_names("x"), profile_by_name(profile)), copy.source(), [ported])

    assert proven()
    assert not proven("v0.1.0")
    for file in ("vllm_omni/diffusion/models/omnigen2/pipeline_omnigen2.py", ported):
        before = copy.read(file)
        copy.write(file, before + "\nCHANGED = True\n")
        assert not proven()
        copy.write(file, before)
        assert proven()


@pytest.mark.upstream
def test_settings_written_by_hand_survive(folder_of: Callable[..., Path]) -> None:
    from scaffold.lifecycle.merge_spec import merge_specs
    from scaffold.spec import IntegrationSpec, read_spec

    stored = read_spec(folder_of(*FIRST) / "scaffold.toml")
    plain = stored.spec
    by_hand = f"{stored.text}\n[verify.denoiser]\nnum_layers = 3\n"
    written = IntegrationSpec.from_toml(by_hand, lock=stored.lock)
    merged = merge_specs(written, plain, plain)
    assert merged.spec.value("verify.denoiser") == {"num_layers": 3}
    assert merged.spec.value("port.entry") == plain.value("port.entry")
