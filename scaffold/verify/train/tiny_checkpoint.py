"""The tiny checkpoint of a ported package, and the variables that its smoke script asks a person for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scaffold.errors import ScaffoldError
from scaffold.files.documents import parse_json
from scaffold.files.reading import read_text
from scaffold.verify.package import Package
from scaffold.verify.rollout.engine_side.sample import FILE
from scaffold.verify.rollout.environment import Environment
from scaffold.verify.rollout.facts import NotEstablishedError
from scaffold.verify.rollout.level import kept_log, make_plan
from scaffold.verify.rollout.process import run_process

REVISION = "0" * 40
PIPELINE = "actor_rollout_ref.rollout.pipeline"


@dataclass(frozen=True)
class TinyCheckpoint:
    """What the pipeline made of itself.

    Attributes:
        model: folder of the checkpoint.
        variables: of the smoke script.
        overrides: of the trainer.
    """

    model: Path
    variables: Mapping[str, str]
    overrides: Mapping[str, str]


def make_tiny_checkpoint(
    package: Package, environment: Environment, dtype: str, folder: Path, released: Path | None = None
) -> TinyCheckpoint | None:
    """Have the real pipeline make a tiny checkpoint, as at level ``rollout``.

    Args:
        package: any; one that builds a checkpoint itself needs none.
        environment: with the real vllm-omni.
        dtype: of its weights.
        folder: gets checkpoint and sample; it has to be empty.
        released: checkpoint of whose configuration the tiny one has its settings; None for the names of the settings.

    Returns:
        None for a package whose denoiser is not ported.

    Raises:
        ScaffoldError: the pipeline could not be run; the message says where all it printed is.
    """
    try:
        plan = make_plan(package, environment, released, folder)
    except NotEstablishedError as reason:
        raise ScaffoldError(f"level train cannot run: {reason}") from None
    if plan.tiny is None:
        return None
    task = plan.task(dtype, folder / "tiny.jsonl", library=None, sample=str(folder))
    file = folder / "task.json"
    task.write(file)
    log = folder / "log"
    ending = run_process(environment, file, log, profile=plan.profile)
    if ending.problem is not None:
        raise ScaffoldError(
            f"level train cannot run: no tiny checkpoint: {ending.problem}",
            hint=f"all it printed is in {kept_log(log, 'tiny')}",
        )
    found = parse_json(read_text(folder / FILE))
    row = folder / "row.json"
    row.write_text(json.dumps(sample_row(package.spec, found)), encoding="utf-8")
    model = Path(task.checkpoint)
    hub = _hub(model / "hub", folder / "hub")
    sizes = {name: str(found[name]) for name in ("height", "width", "num_frames") if found[name]}
    plain = {name: value for name, value in found["values"].items() if isinstance(value, bool | int | float | str)}
    asked = {"OMNI_SCAFFOLD_TRAIN_REQUEST": json.dumps(plain)} if plain else {}
    return TinyCheckpoint(
        model,
        {
            "TOKENIZER_PATH": found["tokenizer"],
            "SAMPLE": str(row),
            **hub,
            **asked,
            **{name.upper(): value for name, value in sizes.items()},
        },
        {f"{PIPELINE}.{name}": value for name, value in sizes.items()},
    )


def _hub(made: Path, cache: Path) -> dict[str, str]:
    """Lay parts that a pipeline loads from the Hub out as its cache has them; the variable that names the cache."""
    for place in sorted(made.glob("*/*")):
        repository = cache / f"models--{place.parent.name}--{place.name}"
        (repository / "refs").mkdir(parents=True)
        (repository / "refs" / "main").write_text(REVISION, encoding="ascii")
        (repository / "snapshots").mkdir()
        (repository / "snapshots" / REVISION).symlink_to(place, target_is_directory=True)
    return {"HF_HUB_CACHE": str(cache)} if cache.is_dir() else {}


def sample_row(spec: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """One row as a package's data script takes it.

    Args:
        spec: of the package.
        found: what ``write_sample`` wrote of the request that went through.
    """
    structured = spec.get("media", {}).get("structured")
    return {"prompt": {"caption": found["text"]} if structured else found["text"], **found["values"], **found["files"]}
