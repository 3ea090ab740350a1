"""A package as contracts drive it, only through the API of its adapters."""

from __future__ import annotations

import copy
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from scaffold.attributes import with_attribute
from scaffold.verify.declared import Declared
from scaffold.verify.measured import NotDrivableError
from scaffold.verify.subject import discovery
from scaffold.verify.subject.blueprint import FILES, Blueprint, blueprint_of, chosen, seeded
from scaffold.verify.subject.checkpoint import write_documents
from scaffold.verify.subject.columns import columns, encoded_columns, reference_columns
from scaffold.verify.subject.geometry import Geometry, candidates, image_that_runs
from scaffold.verify.subject.rollout import drive
from scaffold.verify.subject.settings import Settings, engine_settings

STEPS = 6
# Ragged on purpose: the longest prompt at the start, end or middle detects different mistakes.
PROMPTS: tuple[tuple[int, ...], ...] = ((5, 6, 7), (9, 8, 7, 6, 5, 4, 3), (11, 12, 13, 14, 15))
EQUALLY_LONG = ((5, 6, 7, 8), (20, 19, 18, 17), (11, 3, 12, 4))
# How much wider than its longest prompt a batch is, as with the rollout's columns.
SPARE = 3
# Of the latents of ``unlike`` samples.
SCALES = (1.0, 20.0, 0.05)


class Subject:
    """The package under test.

    Args:
        job: the parent process's facts about the package, see ``contract_level``.
        package: the imported package.
    """

    def __init__(self, job: dict[str, Any], package: Any) -> None:
        self.job = job
        self.package = package
        self.name: str = job["module"]
        self.spec: dict[str, Any] = job["spec"]
        self.folder = Path(job["folder"])
        self.table = Declared.of(job["table"])

    @property
    def loaded(self) -> bool:
        """Whether VeRL-Omni loads the module through diffusers."""
        return bool(self.spec.get("port", {}).get("form") == "diffusers")

    # Classes

    @cached_property
    def _adapters(self) -> tuple[tuple[str, str], Any, Any]:
        return discovery.flow_grpo_adapters(self.name)

    @property
    def key(self) -> tuple[str, str]:
        """Architecture and algorithm that the training adapter is registered under."""
        return self._adapters[0]

    @property
    def training(self) -> Any:
        """The training adapter."""
        return self._adapters[1]

    @property
    def rollout(self) -> Any:
        """The rollout adapter.

        Raises:
            NotDrivableError: none is registered.
        """
        if self._adapters[2] is None:
            raise NotDrivableError("no rollout adapter is registered; see registration")
        return self._adapters[2]

    @cached_property
    def module_class(self) -> Any:
        """Class of the training module."""
        discovery.require_own_module(self.training)
        return discovery.module_class(self.name, self.training)

    @cached_property
    def config_class(self) -> Any:
        """Class of its configuration."""
        return discovery.config_class(self.name, self.module_class)

    @cached_property
    def blueprint(self) -> Blueprint:
        """What the module is built from: the configuration's class, or files that the package's loading code reads."""
        return blueprint_of(self)

    @property
    def needs_embeddings(self) -> bool:
        """Whether the rollout hands over embeddings of a prompt, according to the package's table."""
        return bool(self.table.columns)

    @cached_property
    def reads_masks(self) -> bool:
        """Whether the masks of ragged embeddings affect the adapter's model inputs."""
        settings, module = self.settings(), self.new_module()
        trajectory = self.trajectory(len(PROMPTS), settings)
        made = []
        for whole in (False, True):
            batch = self.micro_batch(PROMPTS, trajectory[0])
            for name in {"prompt_embeds_mask", "negative_prompt_embeds_mask"} & batch.keys():
                batch[name] = torch.ones_like(batch[name]) if whole else batch[name]
            inputs, _ = self.prepared(module, settings, trajectory, batch)
            made.append(inputs)
        return made[0].keys() != made[1].keys() or not all(_same(made[0][name], made[1][name]) for name in made[0])

    @cached_property
    def _files(self) -> tempfile.TemporaryDirectory[str]:
        folder = tempfile.TemporaryDirectory(prefix="omni-scaffold-files-")
        write_documents(Path(folder.name), {**FILES, **self.table.files})
        return folder

    @property
    def files(self) -> str:
        """Folder of what training reads of a checkpoint beside the denoiser's own: the given one, else made files."""
        return str(self._files.name if self.table.files else self.job["checkpoint"] or self._files.name)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The sizes of the tiny model."""
        found = self.job.get("sizes")
        if found is None:
            return chosen(self)
        if "unknown" in found:
            raise NotDrivableError(found["unknown"])
        return dict(found["values"])

    @cached_property
    def _arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return self.blueprint.arguments(self.sizes)

    @cached_property
    def config(self) -> Any:
        """The tiny configuration: what the module's constructor is given."""
        args, kwargs = self._arguments
        given = [*args, *kwargs.values()]
        if len(given) == 1 and not isinstance(given[0], int):
            return given[0]
        return getattr(self.new_module(), "config", None) or SimpleNamespace(**kwargs)

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """The module's attributes that adapters may read besides parameters, such as sizes."""
        found = vars(self.new_module()).items()
        # A module of a library that has learned to take recorded calls has its forward beside its class.
        return {name: value for name, value in found if name[0] != "_" and name not in ("training", "forward")}

    @property
    def half(self) -> Subject:
        """The package with half-precision inputs: itself if it makes its own inputs."""
        return self

    def rolled_out(self, number: int) -> dict[str, Any] | None:
        """A sample of the real pipeline with the velocities of its steps; None where none was recorded."""
        return None

    def unused(self, module: Any, names: Sequence[str]) -> set[str]:
        """Return the given parameters that no input of this subject reaches; none by default."""
        return set()

    def may_lack(self, target: str) -> bool:
        """Whether a LoRA target or a prefix may name a layer that only other configurations of the module have."""
        return False

    def declared(self, name: str) -> list[str]:
        """LoRA targets or layer prefixes as spec or launch script declare them.

        Raises:
            NotDrivableError: nobody declares them.
        """
        found: list[str] | None = self.job["declared"].get(name)
        if not found:
            raise NotDrivableError(f"neither scaffold.toml nor a launch script of the package gives {name}")
        return found

    # Model

    def new_module(self, seed: int = 0) -> Any:
        """A float32 training module in eval mode whose weights follow from the seed."""
        torch.manual_seed(seed)
        try:
            args, kwargs = copy.deepcopy(self._arguments)
            module = self.module_class(*args, **kwargs)
        except NotDrivableError:
            raise
        except Exception as error:
            raise NotDrivableError(f"{self.module_class.__name__}(…) raises {type(error).__name__}: {error}") from error
        return seeded(module)

    def train(self, module: Any) -> Any:
        """Put a module into train mode as the engine does; returns it."""
        module.train()
        self.training.configure_train_mode(module)
        return module

    def settings(self, *, steps: int = STEPS, asked: set[str] | None = None, **changes: Any) -> Settings:
        """What the engine hands adapters as ``model_config``.

        Args:
            steps: requested steps.
            asked: names read from ``pipeline`` are added here.
            changes: ``sde_type``, ``noise_level``, ``lora_rank``, ``local_path``; anything else goes to ``pipeline``.
        """
        image = self._image if self._image is not None else self.geometry
        values = {
            "architecture": self.key[0],
            "algorithm": self.key[1],
            "local_path": self.files if not self.spec and "local_path" not in changes else None,
            "target_modules": self.job["declared"].get("target_modules", "all-linear"),
        }
        size = {"height": image.height, "width": image.width, "num_inference_steps": steps}
        return engine_settings(values, size, changes, asked)

    def settings_without_image(self, **changes: Any) -> Settings:
        """The same as `settings`, before an image size is known."""
        with with_attribute(self, "_image", Geometry(64, 64, (1, 1))):
            return self.settings(**changes)

    _image: Geometry | None = None

    @cached_property
    def geometry(self) -> Geometry:
        """An image that the package takes.

        Raises:
            NotDrivableError: none was found; the reason is that of the likeliest.
        """
        return image_that_runs(self, PROMPTS[:1])

    def images(self, module: Any) -> Iterable[Geometry]:
        """Images to try, likeliest first; the declared one alone where there is one."""
        if self.table.image is not None and self.table.latents is not None:
            return [Geometry(*self.table.image, self.table.latents)]
        return candidates(self.config, module, self.spec)

    # Inputs

    def scheduler(self, settings: Settings) -> Any:
        """The training side's scheduler on the CPU, as the adapter builds it for the engine.

        A scheduler built from checkpoint files, which do not exist here, gets its timesteps from the adapter.
        """
        with suppress(Exception):
            return self.training.build_scheduler(settings)
        scheduler = sys.modules["verl_omni.pipelines.schedulers"].FlowMatchSDEDiscreteScheduler()
        self.training.set_timesteps(scheduler, settings, "cpu")
        return scheduler

    def latents(self, batch: int, length: int, seed: int = 1) -> Tensor:
        """A random trajectory ``(batch, length, …)``; sample i depends on ``seed + i`` alone."""
        image = self._image if self._image is not None else self.geometry
        rows = [
            torch.randn(length, *image.shape, generator=torch.Generator().manual_seed(seed + i)) for i in range(batch)
        ]
        return torch.stack(rows)

    def micro_batch(self, prompts: Any, latents: Tensor | None = None) -> Any:
        """The engine's batch: ``prompt_token_ids`` per sample, what the rollout hands on, the agent loop's padded ids.

        With ``latents``, the trajectories of the samples, requests brought images where the package's do.
        """
        rows = [list(ids) for ids in prompts]
        content = self._ids(rows)
        for name, value in ({} if latents is None else self.references(latents)).items():
            content[name] = value
        for name, value in columns(self.table, rows).items():
            content[name] = value
        return content

    def _ids(self, prompts: Any) -> Any:
        """The part of the engine's batch that every package gets."""
        from tensordict import TensorDict
        from tensordict.tensorclass import NonTensorData, NonTensorStack

        rows = [list(ids) for ids in prompts]
        width = max(map(len, rows))
        padded = torch.tensor([[0] * (width - len(row)) + row for row in rows])
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
        content: dict[str, Any] = {"prompts": padded, "attention_mask": mask}
        for column in {"prompt_token_ids", self.spec.get("prompt", {}).get("column") or "prompt_token_ids"}:
            content[column] = NonTensorStack(*(NonTensorData(row) for row in rows))
        content |= encoded_columns(rows, max(map(len, rows)) + SPARE)
        return TensorDict(content, batch_size=[len(rows)])

    def references(self, latents: Tensor) -> dict[str, Tensor]:
        """What a rollout made of the reference image of each trajectory ``(B, T + 1, …)``, by column.

        Nothing for a package whose requests bring none. A sample has the same image in whatever batch it is.
        """
        if not self.spec.get("architecture", {}).get("references"):
            return {}
        return reference_columns(latents, self.config.max_latent_size, self.config.hidden_size)

    def inputs(
        self,
        module: Any,
        prompts: Any = PROMPTS,
        *,
        step: int = 0,
        seed: int = 1,
        settings: Settings | None = None,
        trajectory: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Return the adapter's arguments of ``forward`` for a micro-batch, with and without the prompt."""
        settings = settings or self.settings()
        trajectory = trajectory or self.trajectory(len(prompts), settings, seed)
        made = self.prepared(module, settings, trajectory, self.micro_batch(prompts, trajectory[0]), step)
        if not isinstance(made, tuple) or len(made) != 2:
            raise NotDrivableError(f"prepare_model_inputs returns {type(made).__name__}, not a pair; see input-keys")
        return made

    def prepared(
        self, module: Any, settings: Settings, trajectory: tuple[Tensor, Tensor], batch: Any, step: int = 0
    ) -> Any:
        """What ``prepare_model_inputs`` returns for a micro-batch; the engine takes four columns out of it."""
        names = ("prompt_embeds", "prompt_embeds_mask", "negative_prompt_embeds", "negative_prompt_embeds_mask")
        columns = [batch.get(name, None) for name in names]
        return self.training.prepare_model_inputs(module, settings, *trajectory, *columns, batch, step)

    def trajectory(self, batch: int, settings: Settings, seed: int = 1) -> tuple[Tensor, Tensor]:
        """Random latents ``(B, T + 1, …)`` and the schedule's timesteps ``(B, T)``."""
        timesteps = self.scheduler(settings).timesteps.clone()
        return self.latents(batch, len(timesteps) + 1, seed), timesteps.repeat(batch, 1)

    def moving(self, prompts: Sequence[Any]) -> Tensor | None:
        """True for the elements of the latents ``(B, …)`` that a step changes; None where it changes all."""
        return None

    def unlike(self, batch: int, settings: Settings, seed: int = 1, *, levels: bool = True) -> tuple[Tensor, Tensor]:
        """A trajectory as ``trajectory`` gives it, of samples that have little in common.

        A statistic over the batch would be undetectable if all samples were alike: some have large latents, others
        small ones, and with ``levels`` each has its own noise level.
        """
        latents, timesteps = self.trajectory(batch, settings, seed)
        numbers = [(seed - 1 + i) % len(SCALES) for i in range(batch)]
        scales = torch.tensor([SCALES[number] for number in numbers])
        if levels:
            timesteps = torch.stack([row.roll(-i) for row, i in zip(timesteps, numbers, strict=True)])
        return latents * scales.view(-1, *[1] * (latents.ndim - 1)), timesteps

    def passed_on(self) -> dict[str, Any]:
        """``extra_args`` as upstream sees them of a request that gives none.

        Raises:
            NotDrivableError: the rollout adapter cannot be driven.
        """
        return dict(drive(self).roll_out().extra_args)

    @staticmethod
    def velocity(module: Any, inputs: dict[str, Any]) -> Tensor:
        """First output of the module; a bare tensor is taken as it is, which ``forward`` reports."""
        output = module(**inputs)
        found = output if isinstance(output, Tensor) else output[0]
        if not isinstance(found, Tensor):
            raise TypeError(f"forward returns {type(output).__name__} of {type(found).__name__}")
        return found

    def log_prob(
        self,
        module: Any,
        prompts: Any,
        settings: Settings,
        *,
        step: int = 0,
        trajectory: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """One recomputed step: log-prob, mean, deviation and sqrt(-dt), as the training adapter returns them."""
        trajectory = trajectory or self.trajectory(len(prompts), settings)
        inputs = self.inputs(module, prompts, step=step, settings=settings, trajectory=trajectory)
        return self.scored(module, settings, inputs, trajectory, step)

    def scored(
        self, module: Any, settings: Settings, inputs: tuple[Any, Any], trajectory: tuple[Tensor, Tensor], step: int
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The same of ``inputs`` that were made before; ``trajectory`` are latents and timesteps."""
        recorded = {"all_latents": trajectory[0], "all_timesteps": trajectory[1]}
        result: tuple[Tensor, Tensor, Tensor, Tensor] = self.training.forward_and_sample_previous_step(
            module, self.scheduler(settings), settings, *inputs, recorded, step
        )
        return result


def _same(one: Any, other: Any) -> bool:
    one, other = tree_leaves(one), tree_leaves(other)
    return len(one) == len(other) and all(
        torch.equal(a, b) if isinstance(a, Tensor) and isinstance(b, Tensor) else a is b or a == b
        for a, b in zip(one, other, strict=True)
    )
