"""Which packages were run: nothing left to write is not enough for `complete`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import tomli

from scaffold.files.reading import read_text
from scaffold.files.resources import presets_root
from scaffold.grade.origin import digest
from scaffold.target import default_profile

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
    recorded = proofs().get(request.report.upstream.version or "", {}).get(_key(request))
    if recorded is None or request.profile.name != default_profile().name:
        return False
    return recorded == digest_of_code(source, _modules(request), ported)


def _modules(request: SpecRequest) -> list[str]:
    """Modules of the pipeline, and of the pipelines above it."""
    return [request.report.upstream.module, *(request.report.value("detail.pipeline.bases") or ())]


def _key(request: SpecRequest) -> str:
    """The name under which a pipeline is recorded: its registry key, and the task where it is not the usual one."""
    key = str(request.report.value("detail.pipeline.registry_key"))
    return key if request.report.task is None else f"{key} {request.report.task}"


def digest_of_code(source: UpstreamSource, modules: Iterable[str], ported: Iterable[str] = ()) -> str:
    """Return the digest of the code that a package was run with: a pipeline's folders, and what is ported.

    Args:
        source: the version of vllm-omni.
        modules: of the pipeline, and of the pipelines above it in other folders.
        ported: files beside those of the folders.
    """
    folders = [module.replace(".", "/").rpartition("/")[0] for module in modules]
    return digest(source, {*(file for folder in folders for file in source.files(f"{folder}/")), *ported})


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


@dataclass(frozen=True)
class Agreement:
    """What was compared with the real pipeline of a package that VeRL-Omni cannot run yet.

    Attributes:
        code: digest of the code that it was.
        loop: largest difference of what the pipeline makes, with the rollout's step without noise in place of its own,
            over the largest value.
        log_prob: largest difference between the log-probs of the rollout in that loop, with noise, and of training.
        module: as ``loop``, of the ported denoiser's output; None where that was not compared.
    """

    code: str
    loop: float
    log_prob: float
    module: float | None = None


def agreements() -> dict[str, dict[str, Agreement]]:
    """What was compared, by registry key, by the version of vllm-omni; tests measure it again."""
    return {
        version: {pipeline: Agreement(**values) for pipeline, values in found.items()}
        for version, found in _table("agreements.toml").items()
    }


def agrees(request: SpecRequest, source: UpstreamSource, ported: Iterable[str]) -> bool:
    """Whether module and loop of this very code were compared with the real pipeline's."""
    found = agreements().get(request.report.upstream.version or "", {}).get(_key(request))
    whole = found is not None and found.module is not None
    return whole and found is not None and found.code == digest_of_code(source, _modules(request), ported)


@dataclass(frozen=True)
class Figures:
    """What was measured of a proven package; None where it was not.

    Attributes:
        log_prob: largest difference of log-probs between rollout and training, at level rollout, in float32.
        passed: checks of both levels that passed.
        skipped: checks that this package has no part in, or that the machine could not run.
        train_log_prob: that difference in verl-omni's trainer, over all steps.
        train_steps: how many it took.
    """

    log_prob: float | None = None
    passed: int | None = None
    skipped: int | None = None
    train_log_prob: float | None = None
    train_steps: int | None = None


# Machines round differently: by a few spacings of float32 at the log-probs that there are, 6e-8 each.
TOLERANCE = 3e-7


def figures() -> dict[str, dict[str, Figures]]:
    """Figures by registry key, by the version of vllm-omni; ``benchmarks/figures.py`` writes them."""
    return {
        version: {pipeline: Figures(**values) for pipeline, values in found.items()}
        for version, found in _table("figures.toml").items()
    }


def figures_of(checks: Sequence[Mapping[str, Any]]) -> Figures:
    """Return the figures in the ``checks`` of a report of `verify`, as its JSON has them."""
    counted = [check["status"] for check in checks if check["level"] != "train"]
    differences = [
        check["value"]
        for check in checks
        if check["level"] == "rollout" and check["id"].endswith("-log-prob") and check["unit"] == "absolute"
        if check["value"] is not None
    ]
    trained = next((check for check in checks if check["id"] == "train-log-prob"), None)
    return Figures(
        max(differences, default=None),
        counted.count("pass") if counted else None,
        counted.count("skip") if counted else None,
        trained["value"] if trained else None,
        max(map(len, trained["series"].values()), default=None) if trained and trained["series"] else None,
    )


def proofs() -> dict[str, dict[str, str]]:
    """Digests of the code that was run, by registry key, by the version of vllm-omni; a test runs each."""
    return _table("proven.toml")


@cache
def _table(file: str) -> dict[str, dict[str, Any]]:
    data = tomli.loads(read_text(presets_root() / "proofs" / file))
    return {str(version): dict(pipelines) for version, pipelines in data.items()}
