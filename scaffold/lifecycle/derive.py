"""Makes the spec of a pipeline again, with the names and the checkpoint of a recorded spec."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scaffold.checkpoint import CheckpointHeaders
from scaffold.checkpoint.headers import CheckpointFile, TensorHeader
from scaffold.grade import compose, is_ported, specify
from scaffold.new import refuse
from scaffold.remap import KeyMap
from scaffold.render import derive_names
from scaffold.spec import SpecRequest
from scaffold.spec.architecture import parameters
from scaffold.team import PACKAGED

if TYPE_CHECKING:
    from scaffold.grade import Graded
    from scaffold.inspect import Report
    from scaffold.spec import IntegrationSpec
    from scaffold.target import ContractProfile
    from scaffold.team import Team
    from scaffold.upstream import UpstreamSource
if TYPE_CHECKING:
    from scaffold.inspect import Report
    from scaffold.spec import IntegrationSpec


# Reconstructs, from a spec, the headers of the checkpoint it was made from.
#
# A spec names every parameter of the training module with its shape, and the rules by which checkpoint keys become
# parameters. Applied in reverse, the rules give the checkpoint keys, which is all that is needed to make the spec
# again.

ROOT_CONFIG = "config.json"
_SOURCE = "the checkpoint of scaffold.toml"
_TEXT = ("num_attention_heads", "num_key_value_heads", "rms_norm_eps", "rope_theta")
_LATENTS = {"channels": "latent_channel", "downsample": "vae_downsample", "patch": "latent_patch_size"}


def headers_of(spec: IntegrationSpec, report: Report) -> CheckpointHeaders:
    """Return headers and configurations from which the sizes of ``spec`` can be read again.

    Args:
        spec: the recorded spec.
        report: the pipeline as it is now, with the files it reads the sizes from.
    """
    context = spec.context()
    key_map = KeyMap.from_data(context["checkpoint"]["rules"])
    file = (context["checkpoint"].get("files") or ["model.safetensors"])[0]
    entries = tuple(
        TensorHeader(key_map.invert(name) or name, "BF16", tuple(shape), file)
        for name, shape in parameters(context["architecture"], context["latents"]).items()
    )
    size = sum(entry.nbytes for entry in entries)
    return CheckpointHeaders(_SOURCE, (CheckpointFile(file, len(entries), size),), entries, _configs(spec, report))


def _configs(spec: IntegrationSpec, report: Report) -> dict[str, Any]:
    sizes = {name: spec.value(f"architecture.{name}") for name in _TEXT}
    root: dict[str, Any] = {}
    paths = {entry["field"]: entry["path"] for entry in spec.value("checkpoint.root_config") or []}
    for key, field in _LATENTS.items():
        # A value that was read from the configuration must be read from it again.
        if spec.provenance.get(f"latents.{key}", "").startswith("configuration") and paths.get(field):
            _put(root, paths[field], spec.value(f"latents.{key}"))
    names = {str(spec.value("architecture.config_file"))}
    names |= set(report.fact("detail.config_files").value or {})
    configs: dict[str, Any] = {name: dict(sizes) for name in names}
    configs[ROOT_CONFIG] = {**root, **configs.get(ROOT_CONFIG, {})}
    return configs


def _put(config: dict[str, Any], path: str, value: Any) -> None:
    *parents, name = path.split(".")
    for part in parents:
        config = config.setdefault(part, {})
    config[name] = value


def derive(
    recorded: IntegrationSpec,
    report: Report,
    profile: ContractProfile,
    source: UpstreamSource,
    ported: Graded | None = None,
    team: Team | None = None,
) -> Graded:
    """Return the spec of a report for a recorded package; for a ported package, also its port.

    Args:
        recorded: the package's spec.
        report: the pipeline, read from ``source``; the caller may have altered some of its facts.
        profile: the release of verl-omni to write for.
        source: the version of vllm-omni that a denoiser is ported from.
        ported: the result of this function for the unaltered report; its port is reused.
        team: presets that take precedence over the packaged ones.

    Raises:
        ScaffoldError: the pipeline and the recorded checkpoint do not go together.
        RefusedError: the pipeline has become something that no template renders.
    """
    refuse(report)
    names = derive_names(str(recorded.value("names.model")))
    request = SpecRequest(report, names, profile, team=team or PACKAGED)
    if is_ported(recorded):
        return specify(request, source, ported)
    # A spec made from a packaged manifest is made from that manifest again.
    packaged = recorded.provenance.get("architecture.hidden_size") == f"manifest {request.preset.manifest}"
    headers = None if packaged else headers_of(recorded, report)
    return compose(replace(request, headers=headers), source)
