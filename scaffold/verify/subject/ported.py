"""A package with a ported denoiser, as contracts drive it."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from scaffold.attributes import with_attribute
from scaffold.files.reading import copy_tree, read_text
from scaffold.verify.executed_text import executed_files
from scaffold.verify.formulas import relative
from scaffold.verify.measured import NotDrivableError
from scaffold.verify.rollout.engine_side import recorder
from scaffold.verify.rollout.facts import filled_guidance
from scaffold.verify.subject.checkpoint import CheckpointWriter, load, write_tensors
from scaffold.verify.subject.geometry import Geometry
from scaffold.verify.subject.recorded import RecordedSubject
from scaffold.verify.subject.settings import Settings
from scaffold.verify.subject.subject import EQUALLY_LONG, PROMPTS


class PortedSubject(RecordedSubject):
    """The package under test, its tiny checkpoint, and what the real pipeline made of some prompts.

    Token ids mean nothing to it: a prompt of a contract stands for one of the recorded samples, those of ``PROMPTS``
    for the three of different lengths.
    """

    _bent = False  # inside of `own_schedules`

    @property
    def made(self) -> dict[str, Any]:
        found: dict[str, Any] = self.job["ported"]
        return found

    @cached_property
    def half(self) -> PortedSubject:
        """The same package, its tiny checkpoint and rollouts those of the pipeline in bfloat16."""
        return PortedSubject({**self.job, "ported": self.job["half"]}, self.package)

    def rolled_out(self, number: int) -> dict[str, Any] | None:
        found: dict[str, Any] = self.recording["samples"][number]
        return found

    @property
    def config(self) -> Any:
        """The denoiser's configuration, as the checkpoint has it."""
        places = (self.checkpoint / "transformer" / "config.json", self.checkpoint / "config.json")
        return json.loads(read_text(next(place for place in places if place.is_file())))

    def new_module(self, seed: int = 0) -> Any:
        """A float32 training module in eval mode, loaded from the tiny checkpoint; other seeds have other weights."""
        module = load(self, self.checkpoint)
        with torch.no_grad():
            generator = torch.Generator().manual_seed(seed)
            for parameter in module.parameters():
                parameter.data = parameter.data.clone()  # the file's memory stays as it is
                if seed:
                    noise = torch.randn(parameter.shape, generator=generator)
                    parameter.add_(0.1 * parameter.std().nan_to_num(0.1) * noise)
        return module.eval()

    def settings(self, *, asked: set[str] | None = None, **changes: Any) -> Settings:
        return super().settings(asked=asked, **{**filled_guidance(self.spec), **changes})

    def images(self, module: Any) -> list[Geometry]:
        return [self.geometry]

    @property
    def carries(self) -> bool:
        """Whether noise levels and what the pipeline makes of its predictions come with the record."""
        common = getattr(self.training, "common", None)
        return common is not None and not hasattr(common, "guide")

    def runtime(self, name: str) -> Any:
        """A module of the runtime that the package rests on."""
        base = next(kind.__module__ for kind in self.training.__mro__[1:] if kind.__module__.endswith(".training"))
        return importlib.import_module(f"{base.rpartition('.')[0]}.{name}")

    def records(self) -> Any:
        """The runtime's module that reads and writes records, whatever the package's version calls it."""
        return importlib.import_module(self.runtime("replay").read_column.__module__)

    def scheduler(self, settings: Settings) -> Any:
        """The training side's scheduler for latents of the recorded size, or with the levels that were recorded.

        Raises:
            NotDrivableError: levels are carried, and no rollout of so many steps was recorded.
        """
        from verl_omni.pipelines.schedulers import FlowMatchSDEDiscreteScheduler

        scheduler = FlowMatchSDEDiscreteScheduler()
        if self.carries:
            if settings.pipeline.num_inference_steps != self.recording["steps"]:
                raise NotDrivableError("noise levels are those of the rollout that carries them")
            calls = self.runtime("replay").read_calls(self.batch_of(self.recording["samples"][:1]))
            self.runtime("records").carry_levels(scheduler, calls[0]["levels"])
            return scheduler
        known = inspect.signature(self.training.set_timesteps).parameters
        size = {"latent_size": self.geometry.shape[-2:]} if "latent_size" in known else {}
        self.training.set_timesteps(scheduler, settings, "cpu", **size)
        return scheduler

    def passed_on(self) -> dict[str, Any]:
        """Nothing that a contract could vary.

        Raises:
            NotDrivableError: always: recorded calls are those of one guidance, and training refuses another.
        """
        raise NotDrivableError("recorded calls have one guidance")

    def velocity(self, module: Any, inputs: dict[str, Any]) -> Tensor:  # type: ignore[override]
        """The module's output; with a tape, what the pipeline makes of its predictions."""
        found = super().velocity(module, inputs)
        calls: Any = inputs.get("calls")
        taped = getattr(calls, "taped", hasattr(calls, "velocity"))  # an older runtime may have recorded none
        return calls.velocity(found) if taped else found

    def sample_of(self, prompt: Any) -> dict[str, Any]:
        """The recorded sample that a prompt stands for."""
        samples: list[dict[str, Any]] = self.recording["samples"]
        known = {tuple(ids): i for i, ids in enumerate((*PROMPTS, *EQUALLY_LONG))}
        found: dict[str, Any] = samples[known.get(tuple(prompt), sum(prompt) % len(samples))]
        return found

    def moving(self, prompts: Sequence[Any]) -> Tensor | None:
        """As the recorded latents show it: a part that is given, a first frame say, is the same at every step."""
        return self.moved([self.sample_of(prompt) for prompt in prompts])

    @staticmethod
    def moved(samples: Sequence[dict[str, Any]]) -> Tensor | None:
        """The same of recorded samples."""
        found = torch.stack([(s["latents"][1:] != s["latents"][:-1]).any(dim=0) for s in samples])
        return None if bool(found.all()) else found

    def micro_batch(self, prompts: Any, latents: Tensor | None = None) -> Any:
        """The engine's batch with the columns that the rollout returned."""
        return self.batch_of([self.sample_of(prompt) for prompt in prompts])

    @contextlib.contextmanager
    def own_schedules(self) -> Iterator[None]:
        """Inside the block each of the three recorded samples was stepped with noise levels of its own."""
        with with_attribute(self, "_bent", True):
            yield

    def unlike(self, batch: int, settings: Settings, seed: int = 1, *, levels: bool = True) -> tuple[Tensor, Tensor]:
        latents, timesteps = super().unlike(batch, settings, seed, levels=levels)
        if self._bent:
            timesteps = torch.stack([bent(row, (seed - 1 + i) % len(PROMPTS)) for i, row in enumerate(timesteps)])
        return latents, timesteps

    def _with_schedule(self, sample: dict[str, Any]) -> dict[str, Any]:
        """A recorded sample whose record has noise levels of its own."""
        records, column = self.records(), self.runtime("calls").COLUMN
        number = next(i for i, other in enumerate(self.recording["samples"]) if other is sample)
        value = sample["extra"][column]
        block = torch.frombuffer(bytearray(value), dtype=torch.uint8) if isinstance(value, bytes) else value
        record = records.read_record(block)
        block = records.write_record({**record, "levels": bent(record["levels"], number)})
        return {**sample, "extra": {**sample["extra"], column: block.numpy().tobytes()}}

    def batch_of(self, samples: list[dict[str, Any]]) -> Any:
        """A micro-batch of recorded samples."""
        from tensordict import TensorDict
        from tensordict.tensorclass import NonTensorData, NonTensorStack

        content: dict[str, Any] = {}
        samples = [self._with_schedule(sample) for sample in samples] if self._bent else samples
        for name in samples[0]["extra"]:
            values = [sample["extra"][name] for sample in samples]
            if all(isinstance(value, Tensor) for value in values):
                content[name] = torch.stack(values)
            else:
                content[name] = NonTensorStack(*(NonTensorData(value) for value in values))
        return TensorDict(content, batch_size=[len(samples)])

    def inputs_of(self, module: Any, samples: list[dict[str, Any]], *, step: int = 0, **changes: Any) -> Any:
        """What the adapter makes of recorded samples and their own trajectories, both branches."""
        trajectory = self.trajectory_of(samples)
        return self.prepared(module, self.settings(**changes), trajectory, self.batch_of(samples), step)

    def guided_velocity(self, module: Any, sample: dict[str, Any], step: int) -> Tensor:
        """The velocity with which training scores one recorded step of one sample, ``(1, …)`` float32.

        Calls are made as the rollout made them: of a row alone sums run in another order, which bf16 may round apart.
        """
        replay = self.runtime("replay")
        with recorder.steps() as taken, with_attribute(replay, "samples_of", lambda *_: set()):
            inputs = self.inputs_of(module, [sample], step=step)
            self.scored(module, self.settings(), inputs, self.trajectory_of([sample]), step)
        return taken[-1].velocity

    def may_lack(self, target: str) -> bool:
        """The denoiser's text serves several configurations: whether it sets layers of those names in some of them.

        Never of a class of diffusers, which has no text in the package.
        """
        if self.loaded:
            return False
        names = [name for name in target.split(".") if not name.isdigit()]
        files = [self.folder / f"{self.spec['names']['model']}_denoiser.py"]
        text = "".join(map(read_text, [*files, *map(Path, executed_files())]))
        numbered = "nn.Sequential(" if target.rpartition(".")[2].isdigit() else ""
        return all(name.isidentifier() and f"self.{name} = " in text for name in names) and (
            f"self.{names[-1]} = {numbered}" in text if names else False
        )

    def unused(self, module: Any, names: Sequence[str]) -> set[str]:
        """Those of some parameters that no recorded call leads to: large changes of them change no velocity."""
        parameters = dict(module.named_parameters())
        pairs = [self.inputs(module, step=step) for step in (0, self.recording["steps"] - 2)]  # early and late
        given = [inputs for pair in pairs for inputs in pair if inputs is not None]
        found: set[str] = set()
        with torch.no_grad():
            base = [self.velocity(module, inputs) for inputs in given] if names else []
            waiting = [list(names)] if names else []
            while waiting:
                group = waiting.pop()
                kept = {name: parameters[name].detach().clone() for name in group}
                for name, value in kept.items():
                    parameters[name].add_(torch.randn(value.shape, generator=torch.Generator().manual_seed(3)))
                same = all(
                    torch.equal(one, self.velocity(module, inputs)) for one, inputs in zip(base, given, strict=True)
                )
                for name, value in kept.items():
                    parameters[name].copy_(value)
                if same:
                    found |= set(group)
                elif len(group) > 1:
                    waiting += [group[: len(group) // 2], group[len(group) // 2 :]]
        return found

    def rounding(self, module: Any) -> float:
        """Relative change of the velocity when latents are moved by eight float32 rounding errors, eight times over."""
        settings = self.settings()
        latents, timesteps = self.trajectory(len(PROMPTS), settings)
        worst = 0.0
        with torch.no_grad():
            base = self.velocity(module, self.inputs(module, trajectory=(latents, timesteps))[0])
            for seed in range(8):
                signs = torch.randint(0, 2, latents.shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1
                moved = latents * (1 + 8 * signs * torch.finfo(torch.float32).eps)
                found = self.velocity(module, self.inputs(module, trajectory=(moved, timesteps))[0])
                worst = max(worst, relative(found, base))
        return worst

    def checkpoint_writer(self) -> CheckpointWriter:
        """Writes checkpoints like the tiny one."""
        module = self.new_module()
        if getattr(getattr(module, "_checkpoint", None), "cut", None):
            return _RowsWriter.of(module._checkpoint, self.checkpoint)
        return _writer(self.checkpoint, module.state_dict(), {name for name, _ in module.named_parameters()})


def bent(levels: Tensor, number: int) -> Tensor:
    """Noise levels of another schedule with the same ends, one for each number."""
    return levels ** (1 + 0.25 * number)


@dataclass(frozen=True)
class _CopyingWriter(CheckpointWriter):
    """Writes changed weights beside the configuration of the tiny checkpoint.

    Attributes:
        source: the tiny checkpoint.
        rest: tensors of other components that the file has, by key.
    """

    source: Path = Path()
    rest: dict[str, Tensor] = field(default_factory=dict)

    def write(self, folder: Path, state: dict[str, Tensor], **changes: Tensor | None) -> None:
        tensors: dict[str, Tensor | None] = {self.names[n]: value for n, value in state.items() if n in self.names}
        copy_tree(self.source, folder, skip=("*.safetensors",))
        write_tensors(folder, self.file, {**self.rest, **tensors, **changes})


@dataclass(frozen=True)
class _RowsWriter(CheckpointWriter):
    """Writes changed weights where several parameters are rows of one tensor of the checkpoint.

    Attributes:
        source: the tiny checkpoint.
        rows: numbers of the rows that a parameter is, where it is not all of its tensor.
    """

    source: Path = Path()
    rows: dict[str, list[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, read: Any, source: Path) -> _RowsWriter:
        """A writer of what the package says that it has read from ``source``."""
        names = {name: key for name, (_, key) in read.keys.items()}
        names |= {name: key for name, (_, key, _) in read.cut.items()}
        rows = {
            name: [row for first, count in runs for row in range(first, first + count)]
            for name, (_, _, runs) in read.cut.items()
        }
        file = next(path for path, _ in read.keys.values())
        return cls(file, names, {}, source=source, rows=rows)

    def write(self, folder: Path, state: dict[str, Tensor], **changes: Tensor | None) -> None:
        tensors: dict[str, Tensor | None] = {}
        for name, value in state.items():
            key = self.names.get(name)
            if key is None or name not in self.rows:
                tensors |= {} if key is None else {key: value}
                continue
            height = sum(len(rows) for other, rows in self.rows.items() if self.names[other] == key)
            whole = tensors.setdefault(key, value.new_full((height, *value.shape[1:]), float("nan")))
            assert whole is not None
            whole[self.rows[name]] = value.detach()
        copy_tree(self.source, folder, skip=("*.safetensors",))
        write_tensors(folder, self.file, {**tensors, **changes})


def _writer(checkpoint: Path, state: dict[str, Tensor], parameters: set[str]) -> _CopyingWriter:
    """Find the file that has all of the denoiser's parameters, and the key of each by its value.

    Raises:
        NotDrivableError: a parameter is in no file, or in several.
    """
    for file in sorted(checkpoint.rglob("*.safetensors")):
        with safe_open(file, framework="pt", device="cpu") as tensors:
            keys = {key: tensors.get_tensor(key) for key in tensors.keys()}  # noqa: SIM118
        names: dict[str, str] = {}
        for name, value in state.items():
            near = [key for key in keys if keys[key].shape == value.shape and torch.equal(keys[key].float(), value)]
            key = name if name in near else next((key for key in near if key not in names.values()), None)
            if key is not None:
                names[name] = key
        if parameters <= names.keys():
            rest = {key: tensor for key, tensor in keys.items() if key not in names.values()}
            return _CopyingWriter(file.relative_to(checkpoint).as_posix(), names, {}, source=checkpoint, rest=rest)
    raise NotDrivableError("which tensors of the tiny checkpoint are the denoiser's was not found out")
