"""Contract profiles: the differences between verl-omni releases, one TOML file each in ``profiles/``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import tomli

from scaffold.errors import ScaffoldError
from scaffold.files.layout import BESIDE, CHECKOUT, INSTALLED, Layout
from scaffold.files.reading import read_text

FOLDER = Path(__file__).resolve().parent / "profiles"
DEFAULT = "main"


@dataclass(frozen=True)
class ContractProfile:
    """One generation of verl-omni as generated code meets it.

    Attributes:
        name: file name of the profile, such as ``v0.2.0``.
        title: the release in words.
        order: rank by age, the oldest first.
        version: the version that the release gives itself.
        vllm_omni: the vllm-omni version that this release pins.
        diffusers: the diffusers version that this vllm-omni pins.
        rollout_result: how a rollout adapter hands its trajectory back.
        hooks: optional classmethods of ``DiffusionModelBase`` that the engine calls.
        logprob_difference: whether the trainer reports how far its log-probs are from the rollout's, as
            ``rollout_corr/logprob_abs_diff_max``.
        peft_below: the first PEFT whose adapters the trainer does not find in a sharded module, or None.
        lora_hook: whether the rollout calls ``map_lora_update_to_engine`` of a pipeline.
        request_audio: whether the rollout server takes sound for a request.
        worker_extension: dotted name of the class that rollout workers are extended with, or None; a package may name
            a subclass of it to the engine.
        sent: scales of guidance that every request has, with the values unless a launch script gives others.
        request_batch_default: whether ``VllmOmniPipelineBase.register`` sets ``supports_request_batch``.
        entry_point: module that its own recipes start.
        v1_entry_point: module that starts the v1 trainer, or None where there is none.
        use_v1: the default of ``trainer.use_v1``.
        io_spec: module of ``DiffusionIOSpec`` and ``MediaSpec``, by which an adapter declares its media, or None.
        request_ids: keys under which a request of a diffusion stage holds its token ids.
        lora_merge: whether ``actor_rollout_ref.model.lora.merge`` exists: LoRA reaches the rollout as merged weights.
        named_media: whether a rollout's media are taken by declared names alone.
        example_readme: path of an example's README; ``{model}`` stands for the model's name.
        docs_link: path of the link to it below ``docs/``, or None where the release has none.
        docs_index: the page whose Examples toctree lists the link, or None.
        docs_link_check: whether a check of the repository demands link and entry.
        smoke_runner: the script that calls the end-to-end scripts, or None.
        smoke_groups: the script that says which smoke tests a changed file starts, or None.
        models_page: the page of supported models, or None.
        limits: what a release does not carry, each with ``file:line`` of its own: ``token_prompts`` (a request holds
            token ids and nothing that another stage makes), ``prompt_only`` (the agent loop sends nothing beside the
            prompt and its media), ``images_only`` (a result without images is not taken). Of a checkout, one that was
            neither found nor ruled out is among them, with the file that was searched.
        pins: other distributions that it pins, and the Python that it wants, as requirements.
        evidence: for each value of the file, by its name there, how it is known (``run`` or ``read``) and from where.
        own_packages: packages of its own, by the pipeline that they are for.
        sketch: positions and neighbouring lines that a patch made without a checkout needs.
        layout: name of the layout of the tree that is written; see `scaffold.files.layout`.
        runtime: ``beside`` the package, or ``installed``.
    """

    name: str
    title: str
    order: int
    version: str
    vllm_omni: str
    diffusers: str
    rollout_result: Literal["rollout_output", "custom_output"]
    hooks: tuple[str, ...]
    logprob_difference: bool
    peft_below: str | None
    lora_hook: bool
    request_audio: bool
    worker_extension: str | None
    sent: Mapping[str, float] = field(compare=False)
    request_batch_default: bool
    entry_point: str
    v1_entry_point: str | None
    use_v1: bool
    io_spec: str | None
    request_ids: tuple[str, ...]
    lora_merge: bool
    named_media: bool
    example_readme: str
    docs_link: str | None
    docs_index: str | None
    docs_link_check: bool
    smoke_runner: str | None
    smoke_groups: str | None
    models_page: str | None
    limits: Mapping[str, str] = field(compare=False)
    pins: Mapping[str, str] = field(compare=False)
    evidence: Mapping[str, str] = field(repr=False, compare=False)
    own_packages: Mapping[str, tuple[str, ...]] = field(repr=False, compare=False)
    sketch: Mapping[str, Any] = field(repr=False, compare=False)
    layout: str = CHECKOUT.name
    runtime: str = BESIDE

    def placed(self, layout: Layout, runtime: str | None = None) -> ContractProfile:
        """Return the profile of an integration that lies elsewhere.

        Args:
            layout: of its tree.
            runtime: ``beside`` the package in a checkout, or ``installed``; a project always has it installed.
        """
        if not layout.external:
            return replace(self, layout=layout.name, runtime=runtime or BESIDE)
        return replace(
            self,
            layout=layout.name,
            runtime=INSTALLED,
            example_readme=layout.readme,
            docs_link=None,
            docs_index=None,
            docs_link_check=False,
            smoke_runner=None,
            smoke_groups=None,
            models_page=None,
        )

    def context(self, model: str) -> dict[str, Any]:
        """Return the ``[target]`` section of the spec for a model."""
        return {
            "profile": self.name,
            "rollout_result": self.rollout_result,
            "logprob_difference": self.logprob_difference,
            "peft_below": self.peft_below,
            "lora_hook": self.lora_hook,
            "worker_extension": self.worker_extension,
            "entry_point": self.entry_point,
            # A feature a release lacks is not an unknown value.
            **({"v1_entry_point": self.v1_entry_point} if self.v1_entry_point else {}),
            "use_v1": self.use_v1,
            **({"io_spec": self.io_spec} if self.io_spec else {}),
            "lora_merge": self.lora_merge,
            "example_readme": self.example_readme.replace("{model}", model),
            "docs_link": self.docs_link.replace("{model}", model) if self.docs_link else None,
            "docs_index": self.docs_index,
            "smoke_runner": self.smoke_runner,
            **({"smoke_groups": self.smoke_groups} if self.smoke_groups else {}),
            **({"models_page": self.models_page} if self.models_page else {}),
            **({"layout": self.layout} if self.layout != CHECKOUT.name else {}),
            **({"runtime": self.runtime} if self.runtime != BESIDE else {}),
        }


@cache
def profiles() -> tuple[ContractProfile, ...]:
    """Return all profiles, the oldest release first."""
    return tuple(sorted((_read(path) for path in FOLDER.glob("*.toml")), key=lambda profile: profile.order))


def profile_by_name(name: str) -> ContractProfile:
    """Return the profile of that name.

    Raises:
        ScaffoldError: there is none; the message lists those there are.
    """
    for profile in profiles():
        if profile.name == name:
            return profile
    known = ", ".join(profile.name for profile in profiles())
    raise ScaffoldError(f"no contract profile {name!r}", hint=f"there are {known}")


def default_profile() -> ContractProfile:
    """Return the profile used where no checkout says otherwise."""
    return profile_by_name(DEFAULT)


def _read(path: Path) -> ContractProfile:
    data = tomli.loads(read_text(path))
    contract, layout = data["contract"], data["layout"]
    return ContractProfile(
        name=data["name"],
        title=data["title"],
        order=data["order"],
        version=data["version"],
        vllm_omni=data["vllm_omni"],
        diffusers=data["diffusers"],
        rollout_result=contract["rollout_result"],
        hooks=tuple(contract["hooks"]),
        logprob_difference=contract["logprob_difference"],
        peft_below=contract.get("peft_below"),
        lora_hook=contract["lora_hook"],
        request_audio=contract["request_audio"],
        worker_extension=contract.get("worker_extension"),
        sent=dict(contract["sent"]),
        request_batch_default=contract["request_batch_default"],
        entry_point=contract["entry_point"],
        v1_entry_point=contract.get("v1_entry_point"),
        use_v1=contract["use_v1"],
        io_spec=contract.get("io_spec"),
        request_ids=tuple(contract["request_ids"]),
        lora_merge=contract["lora_merge"],
        named_media=contract["named_media"],
        example_readme=layout["example_readme"],
        docs_link=layout.get("docs_link"),
        docs_index=layout.get("docs_index"),
        docs_link_check=layout["docs_link_check"],
        smoke_runner=layout.get("smoke_runner"),
        smoke_groups=layout.get("smoke_groups"),
        models_page=layout.get("models_page"),
        limits=dict(data["limits"]),
        pins=dict(data["pins"]),
        evidence=dict(data["evidence"]),
        own_packages={key: tuple(names) for key, names in data.get("own_packages", {}).items()},
        sketch=data["sketch"],
    )
