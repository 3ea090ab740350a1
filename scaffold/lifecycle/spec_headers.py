"""The headers of the checkpoint that a spec was made from, as far as the spec tells.

A spec names every parameter of the training module with its shape, and the rules by which checkpoint keys become
parameters. Taken backwards they give the keys that the module is filled from: all that making the spec again needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scaffold.checkpoint import CheckpointHeaders
from scaffold.checkpoint.headers import CheckpointFile, TensorHeader
from scaffold.remap import KeyMap
from scaffold.spec.architecture import parameters

if TYPE_CHECKING:
    from scaffold.inspect import Report
    from scaffold.spec import IntegrationSpec

ROOT_CONFIG = "config.json"
_SOURCE = "the checkpoint of scaffold.toml"
_TEXT = ("num_attention_heads", "num_key_value_heads", "rms_norm_eps", "rope_theta")
_LATENTS = {"channels": "latent_channel", "downsample": "vae_downsample", "patch": "latent_patch_size"}


def headers_of(spec: IntegrationSpec, report: Report) -> CheckpointHeaders:
    """Return headers and configurations that give the sizes of ``spec`` again.

    Args:
        spec: the recorded spec.
        report: the pipeline as it is now; it says which files it reads the sizes from.
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
        # What the recorded value was read from is what must speak again.
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
