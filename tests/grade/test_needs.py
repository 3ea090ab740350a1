"""What a person must see to beside the ported code is in the list of what is left, with its place."""

from __future__ import annotations

import ast
from dataclasses import replace
from functools import cache

import pytest

from scaffold.files.resources import templates_root
from scaffold.grade import COMPLETE, PARTIAL, UNPROVEN, grade_of, specify
from scaffold.grade.decide import specify_ported
from scaffold.grade.models_page import row
from scaffold.grade.needs import _asks_by_name, _handed
from scaffold.grade.proof import agreements, digest_of_code, hindrances, proofs
from scaffold.inspect import inspect_pipeline
from scaffold.new import render_package
from scaffold.render import derive_names
from scaffold.render.names import model_name
from scaffold.spec import IntegrationSpec, SpecRequest
from scaffold.target import default_profile, profile_by_name
from scaffold.upstream import locate

pytestmark = pytest.mark.upstream
VERSION = "0.30.0"
_OLD = profile_by_name("v0.1.0")
UNLIMITED = replace(_OLD, limits={"token_prompts": _OLD.limits["token_prompts"]})
# Key of the entry, part of what it says, and file of its place.
NEEDS = {
    "MammothModa2DiTPipeline": [],
    "MingImageDiffusionPipeline": [],
    "MingImagePipeline": [],
    "AuKPipeline": [],
    "Pi0Pipeline": [],
    "SanaWmPipeline": [],
    "LancePipeline": [("part", "Qwen2MoTForCausalLM", "vllm_omni/diffusion/models/lance/pipeline_lance.py")],
    "HunyuanImage3ForCausalMM": [],
    "AnimaPipeline": [],
    "WanS2VPipeline": [],
}
# What the port of its denoiser lacks is of a kind of its own; `new` composes the package of shared blocks instead.
COMPOSED = {"LancePipeline"}
OWN = {"configuration", "stages", "output", "request", "part", "forward"}


@cache
def spec_of(key: str, profile: str = "main") -> IntegrationSpec:
    upstream = locate(VERSION)
    report = inspect_pipeline(upstream, key)
    chosen = default_profile() if profile == "main" else profile_by_name(profile)
    request = SpecRequest(report, derive_names(model_name(key)), chosen)
    if key in COMPOSED:
        return specify_ported(request, upstream, "asked for").spec
    return specify(request, upstream).spec


def test_a_second_key_of_a_class_is_not_proven_by_the_first() -> None:
    """What the second one takes is another matter, and so is its checkpoint: it takes a picture apart."""
    first, second = (spec_of(f"MingImage{layered}DiffusionPipeline") for layered in ("", "Layered"))
    assert (grade_of(first), grade_of(second)) == (COMPLETE, PARTIAL)
    (lacks,) = (entry for entry in second.value("grade.missing") if entry["key"] == "request")
    assert "what requests bring beside the prompt (reference_image)" in lacks["what"]
    assert lacks["at"].startswith("vllm_omni/diffusion/models/ming_image/pipeline.py:")
    assert second.value("upstream.registry_key") == "MingImageLayeredDiffusionPipeline"
    assert second.value("names.repository") is None


@pytest.mark.parametrize("key", NEEDS)
def test_every_need_is_listed_with_its_place(key: str) -> None:
    missing = [entry for entry in spec_of(key).value("grade.missing") if entry["key"] in OWN]
    assert [entry["key"] for entry in missing] == [name for name, _, _ in NEEDS[key]]
    for entry, (_, says, file) in zip(missing, NEEDS[key], strict=True):
        assert says in entry["what"]
        place, _, line = entry["at"].rpartition(":")
        assert place == file
        assert 1 <= int(line) <= locate(VERSION).read(place).count("\n") + 1


# What no package can make up for: key of the entry, part of what it says, and the limit of the release.
ACTIONS = ("output", "results that are actions of a robot", "images_only")
THEIRS = {
    "AuKPipeline": [
        ("stages", "stage encoder", "token_prompts"),
        ("output", "results that are sound", "images_only"),
    ],
    "Pi0Pipeline": [("request", "robot_obs", "prompt_only"), ACTIONS],
    "Pi05Pipeline": [("request", "robot_obs", "prompt_only"), ACTIONS],
    "InternVLAA1Pipeline": [("request", "batch_inputs", "prompt_only"), ACTIONS],
    "Gr00tN1d7Pipeline": [("request", "robot_obs", "prompt_only"), ACTIONS],
}


@pytest.mark.parametrize("key", {**NEEDS, **THEIRS})
def test_what_verl_omni_does_not_carry_is_named_with_its_place(key: str) -> None:
    limits, expected = default_profile().limits, THEIRS.get(key, [])
    found = spec_of(key).value("grade.needs") or []
    assert [(entry["key"], entry["at"]) for entry in found] == [(name, limits[limit]) for name, _, limit in expected]
    for entry, (_, says, _) in zip(found, expected, strict=True):
        assert says in entry["what"]
    whats = {entry["what"] for entry in spec_of(key).value("grade.missing")}
    assert not {entry["what"] for entry in found} & whats, "a person cannot write it"


@pytest.mark.parametrize("key", THEIRS)
def test_a_package_that_verl_omni_cannot_run_refuses_requests_and_says_so(key: str) -> None:
    files, spec = render_package(spec_of(key), [], None)
    model, package = spec.value("names.model"), spec.value("names.package")
    tree = ast.parse(files[f"verl_omni/pipelines/{package}/agent_loop.py"].content)
    (loop,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
    assert ast.unparse(loop.bases[0]) == "RefusingAgentLoop"
    (refused,) = (node.value for node in loop.body if isinstance(node, ast.Assign))
    places = [entry["at"] for entry in spec.value("grade.needs")]
    text = " ".join(files[str(spec.value("target.example_readme"))].content.split())
    for place in places:
        assert place in ast.literal_eval(refused)
        assert f"`{place}` of VeRL-Omni" in text
    scripts = [file for path, file in files.items() if path.endswith(".sh")]
    named = [f"{model}_agent_loop.yaml" in file.content for file in scripts]
    assert scripts
    assert all(named), "a server that sees no images would send requests without end"


@pytest.mark.parametrize("key", agreements()[VERSION])
def test_what_was_compared_was_this_code(key: str) -> None:
    """Other code ends the claim: compare again, and record digest and figures in agreements.toml."""
    spec, recorded = spec_of(key), agreements()[VERSION][key]
    modules = [str(spec.value("upstream.module")), *(spec.value("upstream.bases") or [])]
    assert digest_of_code(locate(VERSION), modules, spec.value("port.derived_from")) == recorded.code
    said = "Tests have compared module and loop with those of the real pipeline"
    assert (said in spec.value("grade.reason")) == (grade_of(spec) == UNPROVEN)


def test_an_unproven_package_says_what_it_waits_for() -> None:
    reason = spec_of("AuKPipeline").value("grade.reason")
    assert reason.startswith("nothing is left to write in the package, but verl-omni main does not carry the prompts")
    text = readme("AuKPipeline")
    assert "**This integration is unproven.**" in text
    assert "nothing here can be trained" in text
    assert "nothing here can be trained" not in readme("MingImagePipeline")


@pytest.mark.parametrize("key", hindrances()[VERSION])
def test_what_keeps_a_pipeline_from_its_proof_is_told_with_its_place(key: str) -> None:
    found = hindrances()[VERSION][key]
    assert key not in proofs()[VERSION]
    reason = spec_of(key).value("grade.reason")
    assert reason == f"nothing is left to write, and level `rollout` does not pass: {found.reason} ({found.at})"
    file, _, line = found.at.partition(":")
    assert locate(VERSION).read(file).splitlines()[int(line) - 1].strip()


def test_a_limit_that_a_release_does_not_have_is_left_to_a_person() -> None:
    request = SpecRequest(inspect_pipeline(locate(VERSION), "AuKPipeline"), derive_names("auk"), UNLIMITED)
    spec = specify(request, locate(VERSION)).spec
    keys = {name: {entry["key"] for entry in spec.value(name) or []} for name in ("grade.needs", "grade.missing")}
    assert keys == {"grade.missing": {"output", "request"}, "grade.needs": {"stages"}}
    assert grade_of(spec) == PARTIAL


def test_grades_are_honest() -> None:
    assert {key: grade_of(spec_of(key)) for key in NEEDS} == {
        **dict.fromkeys(NEEDS, PARTIAL),
        "AnimaPipeline": COMPLETE,
        "AuKPipeline": UNPROVEN,
        "Pi0Pipeline": PARTIAL,  # functions compute its layers: nothing is called that could be computed again
        "HunyuanImage3ForCausalMM": UNPROVEN,
        "MammothModa2DiTPipeline": COMPLETE,
        "MingImageDiffusionPipeline": COMPLETE,
        "MingImagePipeline": COMPLETE,
        "SanaWmPipeline": UNPROVEN,
        "WanS2VPipeline": COMPLETE,
    }
    found = row("SanaWmPipeline", inspect_pipeline(locate(VERSION), "SanaWmPipeline"), locate(VERSION))
    assert (found.grade, found.missing) == (UNPROVEN, ())
    assert grade_of(spec_of("AnimaPipeline", "v0.2.0")) == UNPROVEN  # nothing was run with that release


def test_a_table_of_values_is_carried_where_the_pipeline_looks_for_it_among_the_extra_arguments() -> None:
    assert spec_of("SanaWmPipeline").value("media.blocks") == [{"key": "sana_wm", "names": ["camera", "action"]}]
    assert spec_of("SanaWmPipeline").value("media.required") == ["image"]
    for key in ("Pi0Pipeline", "WanS2VPipeline"):
        assert spec_of(key).value("media.blocks") is None


def test_behind_other_stages_a_package_of_images_runs_its_stage_in_a_topology_of_its_own() -> None:
    for key, behind, stages, file in (
        ("MingImageDiffusionPipeline", "ming_image", ["mllm"], "ming_image.yaml"),
        ("MingImagePipeline", "ming_flash_omni_image", ["thinker"], "ming_flash_omni_image.yaml"),
        ("MammothModa2DiTPipeline", "mammoth_moda2", ["ar"], "mammoth_moda2.yaml"),
    ):
        spec = spec_of(key)
        assert (spec.value("deploy.behind"), spec.value("deploy.stages"), spec.value("deploy.file")) == (
            behind,
            stages,
            file,
        )
        assert (spec.value("deploy.position"), spec.value("deploy.pipeline")) == (1, f"{model_name(key)}_flow_grpo")
        assert spec.value("media.ocr") is False
    # Sound comes back in no result, so its stage stays where it is; a topology of one stage is named as it is.
    assert spec_of("AuKPipeline").value("deploy.position") is None
    assert spec_of("Pi0Pipeline").value("deploy.position") is None


def test_code_that_asks_transformers_for_no_class_by_its_name_needs_no_registration() -> None:
    assert _asks_by_name("config = AutoConfig.for_model(**values)\n")
    assert not _asks_by_name("config = ImageConfig(**values)\n")
    assert not _asks_by_name("class Config:\n    sub_configs = {'words': AutoConfig}\n")


def test_a_release_that_takes_no_sound_leaves_it_to_a_person() -> None:
    spec = spec_of("WanS2VPipeline", "v0.1.0")
    assert spec.value("media.lacks") == ["audio"]
    (message,) = [entry["message"] for entry in spec.value("grade.missing") if entry["key"] == "request"]
    files, _ = render_package(spec, [], None)
    assert message in ast.unparse(ast.parse(files["verl_omni/pipelines/wan_s2_v_flow_grpo/agent_loop.py"].content))


def readme(key: str, profile: str = "main") -> str:
    files, spec = render_package(spec_of(key, profile), [], None)
    return " ".join(files[str(spec.value("target.example_readme"))].content.split())


def test_the_readme_says_what_is_unknown_and_unproven() -> None:
    text = readme("AnimaPipeline", "v0.2.0")
    assert "**This integration is unproven.**" in text
    assert "partial" not in text
    text = readme("InternVLAA1Pipeline")
    assert "| denoiser | unknown; the pipeline keeps a `" in text


@pytest.mark.parametrize(("used", "expected"), [("self.decoder.model(x)", ["decoder"]), ("x + self.width", [])])
def test_a_module_that_is_handed_in_counts_where_it_is_called(used: str, expected: list[str]) -> None:
    text = "class Above:\n    def __init__(self, decoder, width):\n        self.decoder = decoder\n"
    text += "        self.width = width\n\n\nclass Net(Above):\n    def forward(self, x):\n"
    assert _handed(f"{text}        return {used}\n", "Net") == expected


def test_the_templates_list_of_what_raises_nothing_is_whole() -> None:
    """A need that no place raises for must be left out of what a package's own test looks for."""
    text = (templates_root() / "tests/pipelines/test__package__on_cpu.ported.py.jinja").read_text(encoding="utf-8")
    listed = text.partition("{% set unraised = [")[2].partition("]")[0]
    assert {"configuration", "stages", "output", "part"} <= {word.strip(' "') for word in listed.split(",")}
