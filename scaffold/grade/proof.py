"""Records which packages were run: having nothing left to write is not enough for `complete`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import tomli

from scaffold.files.reading import read_text
from scaffold.files.resources import presets_root
from scaffold.grade.origin import digest
from scaffold.render.names import model_name
from scaffold.target import default_profile

if TYPE_CHECKING:
    from scaffold.spec import SpecRequest
    from scaffold.upstream import UpstreamSource

RUN = "nothing is left to write, and tests have run both levels of `verify` with this version"


def is_proven(request: SpecRequest, source: UpstreamSource, ported: Iterable[str] = ()) -> bool:
    """Whether `check` and both levels of `verify` passed on the package that `new` renders for a pipeline.

    Args:
        request: report and release of verl-omni; only the default release was run.
        source: the version of vllm-omni; modified code under the same version was not run.
        ported: files a denoiser was ported from, outside the pipeline's folder.
    """
    recorded = proofs().get(request.report.upstream.version or "", {}).get(_key(request))
    if recorded is None or request.profile.name != default_profile().name:
        return False
    return recorded == digest_of_code(source, _modules(request), ported)


def _modules(request: SpecRequest) -> list[str]:
    """Modules of the pipeline and of the pipelines it inherits from."""
    return [request.report.upstream.module, *(request.report.value("detail.pipeline.bases") or ())]


def _key(request: SpecRequest) -> str:
    """Return the name under which a pipeline is recorded: its registry key, and the task unless it is the default."""
    key = str(request.report.value("detail.pipeline.registry_key"))
    return key if request.report.task is None else f"{key} {request.report.task}"


def name_of(proven: str) -> str:
    """Return the MODEL that a proven pipeline is rendered as; it tells the task, so that reports do.

    A package of verl-omni may be imported by others of its own, so none of ours has its name.

    Args:
        proven: as in ``proven.toml``: registry key and task.
    """
    pipeline, _, task = proven.partition(" ")
    model = model_name(pipeline)
    model = f"{model}_taped" if f"{model}_flow_grpo" in default_profile().sketch["registry"]["packages"] else model
    return f"{model}_{task}" if task else model


def digest_of_code(source: UpstreamSource, modules: Iterable[str], ported: Iterable[str] = ()) -> str:
    """Return the digest of the code a package was run with: a pipeline's folders, and the ported files.

    Args:
        source: the version of vllm-omni.
        modules: of the pipeline and of the pipelines it inherits from.
        ported: files outside these folders.
    """
    folders = [module.replace(".", "/").rpartition("/")[0] for module in modules]
    return digest(source, {*(file for folder in folders for file in source.files(f"{folder}/")), *ported})


def not_run(request: SpecRequest) -> str:
    """Return why a package with nothing left to write is not complete."""
    version = request.report.upstream.version or request.report.upstream.label
    hindrance = hindrances().get(version, {}).get(_key(request))
    if hindrance is not None:
        return f"nothing is left to write, and level `rollout` does not pass: {hindrance.reason} ({hindrance.at})"
    of_default = request.profile.name == default_profile().name
    others = [other for other, keys in proofs().items() if of_default and _key(request) in keys and other != version]
    return (
        "nothing is left to write but the proof: no test has run `verify --level rollout` with this code of vllm-omni "
        f"{version} and verl-omni {request.profile.name}"
        + (f"; with vllm-omni {' and '.join(others)} it is complete" if others else "")
    )


@dataclass(frozen=True)
class Hindrance:
    """What keeps a pipeline, of whose package nothing is left to write, from passing level ``rollout``.

    Attributes:
        reason: what a run came to, or what stands in the source.
        at: file and line of vllm-omni that show it.
    """

    reason: str
    at: str


def hindrances() -> dict[str, dict[str, Hindrance]]:
    """Hindrances by version of vllm-omni and registry key."""
    return {
        version: {pipeline: Hindrance(**values) for pipeline, values in found.items()}
        for version, found in _table("hindered.toml").items()
    }


def batches_of(request: SpecRequest) -> dict[str, str]:
    """Return ``port.batches`` of a proven pipeline whose denoiser accepts several samples in one call.

    ``alone`` is why its requests are made one by one all the same.
    """
    table, version, key = _table("batches.toml"), request.report.upstream.version or "", _key(request)
    found = {"batches": table.get(version, {}).get(key), "alone": table["alone"].get(version, {}).get(key)}
    return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True)
class Agreement:
    """Comparison with the real pipeline, of a package that VeRL-Omni cannot run yet.

    Attributes:
        code: digest of the compared code.
        loop: largest difference of the pipeline's result, with its own step replaced by the rollout's noise-free step,
            relative to the largest value.
        log_prob: largest difference between the rollout's log-probs in that loop, with noise, and those of training.
        module: as ``loop``, for the ported denoiser's output; None if not compared.
    """

    code: str
    loop: float
    log_prob: float
    module: float | None = None


def agreements() -> dict[str, dict[str, Agreement]]:
    """Comparisons by version of vllm-omni and registry key; tests measure them again."""
    return {
        version: {pipeline: Agreement(**values) for pipeline, values in found.items()}
        for version, found in _table("agreements.toml").items()
    }


def agrees(request: SpecRequest, source: UpstreamSource, ported: Iterable[str]) -> bool:
    """Whether module and loop of exactly this code were compared with the real pipeline's."""
    found = agreements().get(request.report.upstream.version or "", {}).get(_key(request))
    whole = found is not None and found.module is not None
    return whole and found is not None and found.code == digest_of_code(source, _modules(request), ported)


@dataclass(frozen=True)
class Figures:
    """Measurements of a proven package; None if not measured.

    Attributes:
        log_prob: largest difference of log-probs between rollout and training, at level rollout, in float32.
        passed: checks of both levels that passed.
        skipped: checks that do not apply to this package, or that the machine could not run.
        train_log_prob: the same difference in verl-omni's trainer, over all steps.
        train_steps: number of these steps.
        velocity: largest relative difference between the velocities of the pipeline's own denoiser in the engine and of
            training's, at level rollout, in float32.
        lines: of Python in the package's folder, as a project has it.
    """

    log_prob: float | None = None
    passed: int | None = None
    skipped: int | None = None
    train_log_prob: float | None = None
    train_steps: int | None = None
    velocity: float | None = None
    lines: int | None = None


# Machines round differently, by a few float32 spacings (6e-8) at these log-probs.
TOLERANCE = 3e-7


def figures() -> dict[str, dict[str, Figures]]:
    """Figures by version of vllm-omni and registry key; ``benchmarks/figures.py`` writes them."""
    return {
        version: {pipeline: Figures(**values) for pipeline, values in found.items()}
        for version, found in _table("figures.toml").items()
    }


def figures_of(checks: Sequence[Mapping[str, Any]]) -> Figures:
    """Return the figures from the ``checks`` in the JSON of `verify`."""
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
        next((check["value"] for check in checks if check["id"] == "rollout-sde-velocity"), None),
    )


def proofs() -> dict[str, dict[str, str]]:
    """Digests of the code that was run, by version of vllm-omni and registry key; a test runs each."""
    return _table("proven.toml")


@cache
def _table(file: str) -> dict[str, dict[str, Any]]:
    data = tomli.loads(read_text(presets_root() / "proofs" / file))
    return {str(version): dict(pipelines) for version, pipelines in data.items()}
