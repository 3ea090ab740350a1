"""Every pipeline that diffusers does not load is rendered: whole, or in part with what is missing named."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from scaffold.errors import RefusedError
from scaffold.grade import COMPLETE, PARTIAL, UNPROVEN, grade_of, specify
from scaffold.grade.models_page import model_name
from scaffold.inspect import inspect_pipeline
from scaffold.new import refuse, render_package
from scaffold.render import derive_names
from scaffold.spec import SpecRequest
from scaffold.target import default_profile
from scaffold.upstream import UpstreamSource, locate
from scaffold.upstream.registry import read_registry

pytestmark = pytest.mark.upstream

# By hand, from docs/pipelines.md: what the paths other than `non_diffusers` are tried on.
REFUSED = {
    "0.22.0": ["NextStep11Pipeline", "DreamZeroPipeline"],
    "0.27.0rc1": ["MagiHumanPipeline"],
    "0.30.0": ["Magi2Pipeline", "BooguImageTurboPipeline"],
}
# All of the default version for grades; of the older ones what that has no longer, and one of its ported ones.
NON_DIFFUSERS = {
    "0.22.0": ["Cosmos3OmniDiffusersPipeline", "AudioXPipeline", "OmniGen2Pipeline"],
    "0.27.0rc1": ["Krea2Pipeline", "SoulXSingerPipeline", "SoulXSingerSVCPipeline", "WanS2VPipeline"],
    "0.30.0": [
        "MammothModa2DiTPipeline", "AuKPipeline", "WanS2VPipeline", "LongCatVideoAvatarPipeline", "BagelPipeline",
        "BooguImagePipeline", "LancePipeline", "MingImagePipeline", "MingImageDiffusionPipeline", "SanaWmPipeline",
        "InternVLAA1Pipeline", "Gr00tN1d7Pipeline", "Pi0Pipeline", "Pi05Pipeline", "HunyuanImage3ForCausalMM",
        "OmniGen2Pipeline", "SenseNovaU1Pipeline", "LingBotVideoPipeline", "HiDreamO1ImagePipeline", "AnimaPipeline",
    ],
}  # fmt: skip
RAISED = re.compile(r"^.+: port (vllm_omni/\S+\.py):(\d+) of vllm-omni (\S+)$")

SPARE = "        from vllm.model_executor.layers.linear import ReplicatedLinear\n"


@cache
def source(version: str) -> UpstreamSource:
    return locate(version)


@pytest.mark.parametrize("version", NON_DIFFUSERS)
def test_the_list_is_whole(version: str) -> None:
    registered = read_registry(source(version))
    assert set(NON_DIFFUSERS[version]) <= set(registered)


@pytest.mark.parametrize(
    ("version", "key"),
    [pytest.param(version, key, id=f"{version}-{key}") for version, keys in NON_DIFFUSERS.items() for key in keys],
)
def test_every_pipeline_renders(version: str, key: str) -> None:
    upstream = source(version)
    report = inspect_pipeline(upstream, key)
    refuse(report)
    graded = specify(SpecRequest(report, derive_names(model_name(key)), default_profile()), upstream)
    files, spec = render_package(graded.spec, [], None, graded.port)
    if graded.port is None and grade_of(spec) in (COMPLETE, UNPROVEN):
        return  # of the shared templates, which leave nothing to write
    assert grade_of(spec) == PARTIAL or not spec.value("grade.missing")
    package = f"verl_omni/pipelines/{spec.value('names.package')}"
    raised: dict[str, set[str]] = {}
    for path, file in files.items():
        if path.endswith(".py"):
            compile(file.content, path, "exec")
            # The engine's side alone makes a layer of the engine's, when a LoRA update comes.
            content = file.content if not path.endswith("/lora_updates.py") else file.content.replace(SPARE, "")
            assert not re.search(r"^\s*(from|import) vllm(?!_omni)", content, re.MULTILINE), path
            for word in (".cuda", '"cuda"', '"nccl"'):
                assert not path.startswith("verl_omni/") or word not in file.content, (path, word)
        if path.startswith(package) and path.endswith(".py"):
            raised[path.removeprefix(f"{package}/")] = set(messages(file.content))
    ported = files.get(f"{package}/{spec.value('names.model')}_denoiser.py")
    assert (ported is None) == (spec.value("port.entry") is None)
    if ported is not None:
        assert "vllm_omni." not in "\n".join(
            line for line in ported.content.splitlines() if line.startswith(("import", "from"))
        )
    missing = spec.value("grade.missing")
    assert isinstance(missing, list)  # empty where all is written and only `verify` cannot follow
    for entry in missing:
        place = RAISED.match(entry["message"])
        assert place is not None, entry
        lines = upstream.read(place[1]).count("\n") + 1
        assert 1 <= int(place[2]) <= lines
        assert entry["where"] in raised
        readme = files[spec.value("target.example_readme")].content
        assert entry["at"] in readme
    listed = {entry["message"] for entry in missing}
    for path, texts in raised.items():
        for text in texts:
            assert not RAISED.match(text) or text in listed, (path, text)


def messages(text: str) -> list[str]:
    """Return what the NotImplementedErrors of a module say."""
    return [
        node.exc.args[0].value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Raise)
        and isinstance(node.exc, ast.Call)
        and getattr(node.exc.func, "id", "") == "NotImplementedError"
        and node.exc.args
        and isinstance(node.exc.args[0], ast.Constant)
    ]


@pytest.mark.parametrize(
    ("version", "key"),
    [pytest.param(version, key, id=f"{version}-{key}") for version, keys in REFUSED.items() for key in keys],
)
def test_the_others_are_refused_with_reason_and_place(version: str, key: str) -> None:
    report = inspect_pipeline(source(version), key)
    with pytest.raises(RefusedError, match=r"\(vllm_omni/\S+\.py:\d+\)") as refusal:
        refuse(report)
    assert refusal.value.exit_code == 3
    assert len(refusal.value.message) > len(key) + 40
