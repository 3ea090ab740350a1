"""Which packages were run: nothing left to write is not enough for `complete`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

from scaffold.reading import read_text
from scaffold.resources import presets_root

if TYPE_CHECKING:
    from scaffold.spec import SpecRequest
    from scaffold.upstream import UpstreamSource

RUN = "nothing is left to write, and tests have run both levels of `verify` with this version"


def is_proven(request: SpecRequest, source: UpstreamSource, ported: Iterable[str] = ()) -> bool:
    """Whether `check` and both levels of `verify` were shown to pass on what `new` renders of a pipeline.

    Args:
        request: report and release of verl-omni; only the default release was run.
        source: the version of vllm-omni; other code under the same version was not run.
        ported: files that a denoiser was ported from, beside those of the pipeline's folder.
    """
    from scaffold.target import default_profile

    recorded = proofs().get(request.report.upstream.version or "", {}).get(_key(request))
    if recorded is None or request.profile.name != default_profile().name:
        return False
    return recorded == digest_of_code(source, request.report.upstream.module, ported)


def _key(request: SpecRequest) -> str:
    """The name under which a pipeline is recorded: its registry key, and the task where it is not the usual one."""
    key = str(request.report.value("detail.pipeline.registry_key"))
    return key if request.report.task is None else f"{key} {request.report.task}"


def digest_of_code(source: UpstreamSource, module: str, ported: Iterable[str] = ()) -> str:
    """Return the digest of the code that a package was run with: the folder of a pipeline, and what is ported."""
    from scaffold.grade.origin import digest

    folder = module.replace(".", "/").rpartition("/")[0]
    return digest(source, {*source.files(f"{folder}/"), *ported})


def not_run(request: SpecRequest) -> str:
    """Return why a package of which nothing is left to write is not complete."""
    version = request.report.upstream.version or request.report.upstream.label
    return (
        "nothing is left to write but the proof: no test has run `verify --level rollout` with this code of vllm-omni "
        f"{version} and verl-omni {request.profile.name}"
    )


def batches_of(request: SpecRequest) -> dict[str, str]:
    """Return ``port.batches`` of a proven pipeline whose denoiser was shown to take several samples in one call."""
    found = _table("batches.toml").get(request.report.upstream.version or "", {}).get(_key(request))
    return {} if found is None else {"batches": found}


def proofs() -> dict[str, dict[str, str]]:
    """Digests of the code that was run, by registry key, by the version of vllm-omni; a test runs each."""
    return _table("proven.toml")


@cache
def _table(file: str) -> dict[str, dict[str, str]]:
    import tomli

    data = tomli.loads(read_text(presets_root() / "proofs" / file))
    return {str(version): dict(pipelines) for version, pipelines in data.items()}
