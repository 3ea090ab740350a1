"""Level ``train``, from the request to its results; nothing of the package runs in this process."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event

from scaffold.algorithms import FLOW_GRPO
from scaffold.errors import ScaffoldError
from scaffold.scratch import keep, scratch_folder
from scaffold.spec import find_preset
from scaffold.target import Checkout
from scaffold.team import team_of
from scaffold.terminal.interrupt import AGAIN, leaving
from scaffold.verify.package import Package, merges_lora, open_package, registered, upstream_bases
from scaffold.verify.request import VerifyRequest
from scaffold.verify.result import CheckResult, Outcome
from scaffold.verify.rollout.check import Measurement, NotApplicable
from scaffold.verify.rollout.engine_side.tiny import constants
from scaffold.verify.rollout.environment import Environment, find_environment, in_use
from scaffold.verify.rollout.facts import NotEstablishedError, gather_facts, model_name
from scaffold.verify.rollout.judge import judge
from scaffold.verify.train.contract import Contract, Training, contracts
from scaffold.verify.train.contracts.reward import STEPS
from scaffold.verify.train.contracts.reward import applies as learns
from scaffold.verify.train.cuda import find_cuda_environment
from scaffold.verify.train.devices import CPU, DEVICES, NO_UPDATES, card, find_device, on_device
from scaffold.verify.train.exported import Exported, Release, exported, images, released
from scaffold.verify.train.hosting import hosting
from scaffold.verify.train.record import LOG_PROB, REWARD, RunRecord
from scaffold.verify.train.run import RunPlan, train
from scaffold.verify.train.settings import PROMPTS, SIDE
from scaffold.verify.train.sources import Sources, find_sources
from scaffold.verify.train.tiny_checkpoint import TinyCheckpoint, make_tiny_checkpoint
from scaffold.verify.train.trainers import find_trainer, start_with
from scaffold.verify.train.variants import BY_ALGORITHM, FULL, VARIANTS, Variant, merged, variants
from scaffold.verify.train.workshop import build_workshop, smoke_script, workshop_sources

Tell = Callable[[str], None]
MOST_TOLD = 120  # characters of a line of a run's log
# Of a run beside the first: it keeps neither checkpoints nor images, of which the first has those that count.
NO_SAVES = {
    "trainer.save_freq": "-1",
    "trainer.val_before_train": "False",
    "trainer.validation_data_dir": "null",
    "trainer.rollout_data_dir": "null",
}


@dataclass(frozen=True)
class TrainRequest:
    """What is asked of the level beyond the package.

    Attributes:
        steps: training steps.
        variants: names; the ordinary one where none is given.
        verl_omni: a checkout, or None for the one the package lies in or the variable names.
        beside: another package that is run under the same command.
        mistake: a file with ``@after`` that the runs have besides, as a test arms one.
        changes: overrides that come last.
        seed: of the rollouts.
        flat: whether a run of enough steps has a control with a learning rate of 0.
        device: ``cpu`` or ``cuda``.
        dtype: of rollout and training; by default the device's.
        model: checkpoint of whose configuration the tiny one of the package has its settings.
    """

    steps: int = STEPS
    variants: tuple[str, ...] = ()
    verl_omni: Path | None = None
    beside: Path | None = None
    mistake: Path | None = None
    changes: Mapping[str, str] = field(default_factory=dict)
    seed: int = 1
    flat: bool = True
    device: str = CPU
    dtype: str | None = None
    model: Path | None = None


@dataclass(frozen=True)
class Setting:
    """What every run of a request shares."""

    package: Package
    beside: Package | None
    environment: Environment
    sources: Sources
    workshop: Path
    script: Path
    scratch: Path
    request: TrainRequest
    tell: Tell
    places: list[Path]
    checkpoints: dict[tuple[str, str], TinyCheckpoint | None] = field(default_factory=dict)

    def checkpoint(self, package: Package, dtype: str) -> TinyCheckpoint | None:
        """The tiny checkpoint of a ported package, made once; None where the smoke script builds its own."""
        known = self.checkpoints
        if self.request.device != CPU and "port" not in package.spec:
            return None
        if (package.name, dtype) not in known:
            folder = self.scratch / "tiny" / f"{package.name}-{dtype}"
            folder.mkdir(parents=True)
            model = self.request.model if package is self.package else None
            known[package.name, dtype] = make_tiny_checkpoint(package, self._cpu_environment(), dtype, folder, model)
        return known[package.name, dtype]

    def _cpu_environment(self) -> Environment:
        """The environment in which tiny checkpoints are made, whatever the run is on.

        Raises:
            ScaffoldError: it is not built.
        """
        if self.request.device == CPU:
            return self.environment
        found = find_environment(self.environment.version)
        if isinstance(found, str):
            raise ScaffoldError(f"the tiny checkpoint is made on a CPU, and {found}")
        return found


def wanted_variants(names: Sequence[str], package: Package, *, has_v1: bool = True) -> list[Variant]:
    """The variants of these names; ``all`` for each there is, or the one of a package without an adapter.

    Args:
        names: as asked for.
        package: what is trained.
        has_v1: whether the checkout has more than one trainer to choose from.

    Raises:
        ScaffoldError: there is none of a name, or it trains an adapter that the package has not.
    """
    known = variants()
    if package.spec.get("lora", {}).get("rank") == 0:
        other = next((name for name in names if name not in ("all", FULL)), None)
        if other is not None:
            raise ScaffoldError(
                f"{package.name} trains full parameters, which is not a variant {other!r}", hint=f"there is {FULL}"
            )
        return [known[FULL]]
    for name in names:
        if name not in (*known, "all"):
            raise ScaffoldError(f"there is no variant {name!r}", hint=f"there are {', '.join(known)} and all")
    own = package.spec.get("recipe", {}).get("algorithms") or [FLOW_GRPO]
    found = [known[name] for name in names if name != "all"] or [VARIANTS[0]]
    for variant in found:
        if variant.algorithm is not None and variant.algorithm not in own:
            raise ScaffoldError(
                f"{package.name} is not made for {variant.algorithm}",
                hint=f"render it with --algorithm {variant.algorithm}; it is made for {', '.join(own)}",
            )
    if "all" in names:
        found = [variant for variant in VARIANTS if has_v1 or variant.trainer is None]
        found += [variant for variant in BY_ALGORITHM if variant.algorithm in own and own != [FLOW_GRPO]]
    return list(map(merged, found)) if merges_lora(package) else found


def check_ids() -> list[str]:
    """The ids of the level's checks, in the order they are reported."""
    everywhere = [on_device(variant, device) for variant in variants().values() for device in DEVICES.values()]
    return list(dict.fromkeys(contract.check.id for variant in everywhere for contract in contracts(variant)))


def ready(package: Package, request: TrainRequest) -> tuple[Environment, Sources]:
    """Find what the level needs, before anything is run.

    Raises:
        ScaffoldError: something is missing; the message says what, and how to get it.
    """
    sources = find_sources(package, request.verl_omni)
    version = package.spec.get("upstream", {}).get("version") or sources.verl_omni.vllm_omni_pin
    if version is None:
        raise ScaffoldError(f"{sources.verl_omni.root} pins no vllm-omni", hint="use a release of verl-omni that does")
    found = find_environment(str(version)) if request.device == CPU else find_cuda_environment(str(version))
    if isinstance(found, str):
        raise ScaffoldError(found.replace("omni-scaffold env rollout", "omni-scaffold env train"))
    return found, sources


def run_level(verify: VerifyRequest, request: TrainRequest, tell: Tell = lambda _: None) -> Outcome:
    """Run the level.

    Args:
        verify: package and selection.
        request: what to train.
        tell: gets a line for each step of each run as it ends.

    Raises:
        ScaffoldError: something that it needs is missing.
    """
    results: list[CheckResult] = []
    with opened(verify.package, request, tell) as setting:
        has_v1 = find_trainer(setting.sources.verl_omni).has_v1
        with _logs_kept(setting.scratch):
            for known in wanted_variants(request.variants, setting.package, has_v1=has_v1):
                variant = on_device(known, find_device(request.device), request.dtype)
                training = run_variant(setting, variant)
                results += [_judge(contract, training) for contract in contracts(variant)]
        if any(result.status == "fail" for result in results):
            keep(setting.scratch)
        environment = _origins(setting)
    chosen = [result for result in results if not verify.select or result.id in verify.select]
    return Outcome(chosen, environment, "verl_omni")


@contextmanager
def _logs_kept(scratch: Path) -> Iterator[None]:
    """Leave what the runs have printed where the block is interrupted, and nothing else: checkpoints are large."""
    try:
        with leaving(f"what the runs printed is in {scratch}; {AGAIN}"):
            yield
    except (KeyboardInterrupt, SystemExit):  # the latter of a signal
        for log in sorted((scratch / "runs").glob("*/*/log")):
            log.rename(scratch / f"{log.parent.parent.name}-{log.parent.name}.log")
        for entry in scratch.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
        keep(scratch)
        raise


@contextmanager
def opened(package: Path, request: TrainRequest, tell: Tell) -> Iterator[Setting]:
    """Everything that the runs of a request share; what they printed is gone after the block, unless it is kept.

    Raises:
        ScaffoldError: something that it needs is missing.
    """
    own = open_package(package)
    beside = None if request.beside is None else open_package(request.beside)
    chosen = wanted_variants(request.variants, own)
    environment, sources = ready(own, request)
    for variant in chosen if "all" not in request.variants else ():
        find_trainer(sources.verl_omni, variant.trainer)
    with scratch_folder("train") as scratch:
        laid = [found for found in (beside, own) if found]
        workshop = build_workshop(scratch / "workshop", sources.verl_omni.root, laid)
        script = smoke_script(workshop, own, model_name(own))
        start_with(script, find_trainer(sources.verl_omni))
        with in_use(environment), hosting():
            places = workshop_sources(workshop, laid)
            yield Setting(own, beside, environment, sources, workshop, script, scratch, request, tell, places)


def run_variant(setting: Setting, variant: Variant) -> Training:
    """All runs of a variant, two at a time where memory bears it."""
    request = setting.request
    steps = min(request.steps, variant.steps or request.steps)
    plan = _plan(setting, variant, steps, variant.name)
    runs = {"run": plan}
    flat = learns(variant) and steps >= STEPS and request.flat
    if flat:
        changes = {**plan.changes, **NO_UPDATES, **NO_SAVES}
        # As a floor it has a step for the one after the checkpoint, too.
        more = variant.resumes if variant.floor == NO_UPDATES else 0
        flat_folder = _folder(setting, f"{variant.name}-flat")
        runs["learning rate 0"] = replace(plan, folder=flat_folder, steps=steps + more, changes=changes)
    if variant.floor and not (flat and variant.floor == NO_UPDATES):
        runs["floor"] = floor_plan(plan, _folder(setting, f"{variant.name}-floor"))
    if setting.beside is not None:
        runs[setting.beside.name] = _plan(setting, variant, steps, f"{variant.name}-beside", setting.beside)
    records = _run_all(setting, variant, runs)
    resumed, used = _after(setting, variant, plan) if records["run"].problem is None else (None, None)
    beside = None if setting.beside is None else (setting.beside.name, records[setting.beside.name])
    control = records.get("learning rate 0")
    return Training(
        variant,
        steps,
        records["run"],
        control and replace(control, steps=control.steps[:steps]),
        resumed,
        beside,
        _gain(setting.package) if variant.algorithm is None else None,
        records.get("floor", control),
        used,
    )


def _after(setting: Setting, variant: Variant, plan: RunPlan) -> tuple[RunRecord | None, Exported | None]:
    """What a run's checkpoint is good for: a step more by a new process, and an export, beside one another."""
    runs: dict[str, RunPlan] = {}
    release: Release | Exported | None = None
    if variant.resumes:
        changes = {**plan.changes, "trainer.resume_mode": "auto", **NO_SAVES}
        folder = _folder(setting, f"{variant.name}-on")
        runs["resumed"] = replace(plan, folder=folder, steps=plan.steps + 1, changes=changes)
    if variant.exports:
        saved, folder = Path(plan.changes["trainer.default_local_dir"]), _folder(setting, f"{variant.name}-exported")
        try:
            release = released(setting.package, plan, saved, folder)
            runs["exported"] = release.plan
        except ScaffoldError as error:
            release = Exported(error.line)
    records = _run_all(setting, variant, runs) if runs else {}
    if isinstance(release, Release):
        release = exported(plan, release, records["exported"])
    return records.get("resumed"), release


def floor_plan(plan: RunPlan, folder: Path) -> RunPlan:
    """The run that shows what rounding costs in each step, also in the one that a resumed run takes.

    It saves nothing: the resumed run would go on from whichever checkpoint came last.
    """
    changes = {**plan.changes, **plan.variant.floor, **NO_SAVES}
    return replace(plan, folder=folder, steps=plan.steps + plan.variant.resumes, changes=changes)


def _run_all(setting: Setting, variant: Variant, runs: Mapping[str, RunPlan]) -> dict[str, RunRecord]:
    def follow(name: str) -> Callable[[int, Mapping[str, float]], None]:
        def told(number: int, data: Mapping[str, float]) -> None:
            reward, difference = data.get(REWARD, float("nan")), data.get(LOG_PROB, float("nan"))
            seconds = data.get("timing_s/step", float("nan"))
            setting.tell(
                f"{variant.name}, {name}: step {number}, reward {reward:.4f}, log-prob difference {difference:.1e},"
                f" {seconds:.0f} s"
            )

        return told

    def wait(name: str) -> Callable[[float, str], None]:
        return lambda seconds, line: setting.tell(
            f"{variant.name}, {name}: {seconds:.0f} s, no step yet; it printed: {line[:MOST_TOLD]}"
        )

    stopping = Event()
    # With engines of its own, a run takes twice the memory.
    at_once = 1 if variant.engines else min(plan.device.at_once for plan in runs.values())
    with ThreadPoolExecutor(at_once) as pool:
        try:
            found = {name: pool.submit(train, plan, follow(name), stopping, wait(name)) for name, plan in runs.items()}
            return {name: future.result() for name, future in found.items()}
        except BaseException:
            # A signal reaches this thread alone; leaving the block waits for the others, which end what they started.
            stopping.set()
            raise


def _plan(setting: Setting, variant: Variant, steps: int, name: str, other: Package | None = None) -> RunPlan:
    request, package = setting.request, other or setting.package
    folder = _folder(setting, name)
    tiny = setting.checkpoint(package, variant.dtype)
    changes = {**(tiny.overrides if tiny else {}), **request.changes}
    if variant.resumes:
        changes |= {"trainer.save_freq": str(steps), "trainer.default_local_dir": str(folder / "checkpoints")}
    if variant.exports:
        changes |= {"trainer.val_before_train": "True", **images(package, folder)}
    if other is not None:
        changes["actor_rollout_ref.model.architecture"] = architecture(other)
    sources = (*model_folders(package.upstream, setting.environment.folder), package.module)
    return RunPlan(
        environment=setting.environment,
        workshop=setting.workshop,
        verl=setting.sources.verl,
        script=setting.script,
        model=tiny.model if tiny else folder / "model",
        folder=folder,
        variant=variant,
        device=find_device(request.device),
        trainer=find_trainer(setting.sources.verl_omni, variant.trainer),
        steps=steps,
        sources=sources,
        package=package.module,
        places=setting.places,
        seed=request.seed,
        mistake=request.mistake,
        # Each prompt once, so that a resumed run is seen to go on with the data; a reward rises on the same ones.
        prompts=PROMPTS * (steps + 1 if variant.resumes and steps < STEPS else 1),
        changes=changes,
        given={
            **(tiny.variables if tiny else _sizes(package, setting.environment)),
            **({} if variant.algorithm is None else {"ALGORITHM": variant.algorithm}),
        },
    )


def model_folders(upstream: tuple[str, str] | None, environment: Path) -> list[str]:
    """Dotted names of a pipeline's folder in vllm-omni and of those that classes of it inherit from.

    Args:
        upstream: ``module`` and ``class`` of the pipeline.
        environment: with the real vllm-omni.
    """
    found = [_model_folder(upstream[0])] if upstream else []
    for name in found:  # grows on the way
        for place in environment.glob(f"lib/python3.*/site-packages/{name.replace('.', '/')}"):
            bases = [_model_folder(module) for module, _ in upstream_bases(place, environment)]
            found += [base for base in dict.fromkeys(bases) if base not in found]
    return found


def _model_folder(module: str) -> str:
    return ".".join(module.split(".")[:4])


def _sizes(package: Package, environment: Environment) -> dict[str, str]:
    """The table of sizes that the pipeline chooses from, where it has one: all of them are large."""
    try:
        table = gather_facts(package, environment).get("sizes")
    except NotEstablishedError:
        return {}
    return {"OMNI_SCAFFOLD_TRAIN_SIZES": json.dumps({**table, "side": SIDE})} if table else {}


def _folder(setting: Setting, name: str) -> Path:
    folder = setting.scratch / "runs" / name
    folder.mkdir(parents=True)
    return folder


def architecture(package: Package) -> str:
    """The name under which a package registers its training adapter.

    Raises:
        ScaffoldError: its source does not say one.
    """
    named = package.spec.get("names", {}).get("architecture")
    if named:
        return str(named)
    found = registered(package.folder, "DiffusionModelBase")
    if len(found) != 1:
        raise ScaffoldError(f"{package.name} registers {len(found)} training adapters", hint="level train runs one")
    return found.pop()


def _gain(package: Package) -> float | None:
    """How much the reward of the reference of this model rises, where a preset says."""
    key = package.spec.get("upstream", {}).get("registry_key")
    value = find_preset(model_name(package), key, team_of(package.root)).value("train", "gain")
    return None if value is None else float(value)


def _judge(contract: Contract, training: Training) -> CheckResult:
    check = contract.check
    try:
        found = contract.measure(training)
    except NotApplicable as reason:
        found = Measurement("", None, str(reason), skipped=True)
    return judge(check, replace(found, check=check.id), level="train")


def _origins(setting: Setting) -> dict[str, str]:
    checkout: Checkout = setting.sources.verl_omni
    device = find_device(setting.request.device)
    return {
        "the run is on": f"{card(device)}, {setting.request.dtype or device.dtype} unless the variant says otherwise",
        "verl_omni is": f"real: {checkout.title}",
        "verl is": f"real, {setting.sources.verl_label}",
        "the trainer is": find_trainer(checkout).title,
        "vllm_omni is": f"real, {setting.environment.version}",
        **{
            name: text
            for made in setting.checkpoints.values()
            if made
            for name, text in constants.told(made.model).items()
        },
    }
