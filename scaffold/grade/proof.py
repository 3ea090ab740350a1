"""Which ported packages were run: nothing left to write is not enough for `complete`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from scaffold.reading import read_text
from scaffold.resources import presets_root

if TYPE_CHECKING:
    from scaffold.inspect import Report

RUN = "its denoiser is ported, and tests have run `verify` on it with this version"
NOT_RUN = "nothing is left to write but the proof: run `verify --level rollout`, which no test does with these versions"


def is_proven(report: Report, port: Mapping[str, Any], profile: str) -> bool:
    """Whether `check` and both levels of `verify` were shown to pass on what `new` renders of a pipeline.

    Args:
        report: of the pipeline.
        port: the section of the spec; other code under the same version was not run.
        profile: release of verl-omni that the package is for; only the default one was run.
    """
    from scaffold.target import default_profile

    key = report.value("detail.pipeline.registry_key")
    digest = proofs().get(report.upstream.version or "", {}).get(str(key))
    return digest is not None and digest == port.get("source_digest") and profile == default_profile().name


@cache
def proofs() -> dict[str, dict[str, str]]:
    """Digests of the code that was run, by registry key, by the version of vllm-omni; a test runs each."""
    import tomli

    data = tomli.loads(read_text(presets_root() / "proofs" / "ported.toml"))
    return {str(version): dict(pipelines) for version, pipelines in data.items()}
