"""A verl-omni checkout on disk: its root, its pin of vllm-omni, its contract profile."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from scaffold.errors import ScaffoldError
from scaffold.reading import expanded
from scaffold.target.capabilities import DOCS_INDEX, Capabilities, capabilities, missing
from scaffold.target.pin import vllm_omni_asked, vllm_omni_pin
from scaffold.target.profile import ContractProfile, profiles

LINK = "docs/examples/{model}/flowgrpo_trainer_{model}.md"


@dataclass(frozen=True)
class Checkout:
    """A folder known to hold verl-omni.

    Attributes:
        root: its resolved path.
        profile: the nearest release, corrected by what the files really show.
        vllm_omni_pin: the version in its requirements, or None.
        notes: lines for the user about what is unusual in it.
        vllm_omni_asked: what its requirements ask for where they pin no version, or None.
    """

    root: Path
    profile: ContractProfile
    vllm_omni_pin: str | None
    notes: tuple[str, ...]
    vllm_omni_asked: str | None = None

    @classmethod
    def open(cls, path: str | Path) -> Checkout:
        """Look at a folder; neither git nor an import is needed.

        Raises:
            ScaffoldError: it is not a verl-omni checkout; the message says what it lacks.
        """
        root = expanded(path)
        try:
            lack = missing(root)
        except OSError as error:
            lack = error.strerror or str(error)
        if lack is not None:
            hint = "give --verl-omni the folder that holds verl_omni/"
            raise ScaffoldError(f"{path} is not a verl-omni checkout: {lack}", hint=hint)
        root = root.resolve()
        seen = capabilities(root)
        nearest = min(profiles(), key=lambda profile: (len(_differences(profile, seen)), -profile.order))
        differences = _differences(nearest, seen)
        pin = vllm_omni_pin(root)
        notes = []
        if differences:
            notes.append(f"the checkout is nearest to {nearest.title} but differs: {'; '.join(differences)}")
        if pin is None:
            notes.append(f"the checkout pins no one version of vllm-omni; {nearest.title} pins {nearest.vllm_omni}")
        elif pin != nearest.vllm_omni:
            notes.append(f"the checkout pins vllm-omni {pin}; {nearest.title} pins {nearest.vllm_omni}")
        asked = vllm_omni_asked(root) if pin is None else None
        return cls(root, _corrected(nearest, seen), pin, tuple(notes), asked)

    @property
    def asked(self) -> str | None:
        """What the checkout asks for of vllm-omni: the version that it pins, else its requirement."""
        return self.vllm_omni_pin or self.vllm_omni_asked

    @classmethod
    def above(cls, folder: Path) -> Checkout | None:
        """Open the checkout that a folder lies in, or is; None where it lies in none."""
        place = folder.absolute()
        return next((cls.open(root) for root in (place, *place.parents) if missing(root) is None), None)


def profile_for_checkout(path: str | Path) -> ContractProfile:
    """Return the contract profile of a checkout; see `Checkout.open`."""
    return Checkout.open(path).profile


def _known_hooks() -> frozenset[str]:
    return frozenset(hook for profile in profiles() for hook in profile.hooks)


def _differences(profile: ContractProfile, seen: Capabilities) -> list[str]:
    """Return what of the profile does not hold in the checkout, one phrase each."""
    hooks = frozenset(profile.hooks)
    found = [f"DiffusionModelBase has no {hook}" for hook in sorted(hooks - seen.methods)]
    found += [f"DiffusionModelBase has {hook}" for hook in sorted(seen.methods & _known_hooks() - hooks)]
    if profile.rollout_result != seen.rollout_result:
        found.append(f"a rollout returns {seen.rollout_result}")
    for name, expected, actual in (
        ("the difference of log-probs in the trainer's metrics", profile.logprob_difference, seen.logprob_difference),
        ("the rollout's LoRA hook", profile.lora_hook, seen.lora_hook),
        ("the class that extends rollout workers", profile.worker_extension is not None, bool(seen.worker_extension)),
        ("the default of supports_request_batch", profile.request_batch_default, seen.request_batch_default),
        ("linked example pages", profile.docs_link is not None, seen.docs_links),
        ("a check of example links", profile.docs_link_check, seen.docs_link_check),
    ):
        if expected != actual:
            found.append(f"{name} is {'there' if actual else 'missing'}")
    if profile.smoke_runner != seen.smoke_runner:
        found.append(f"the smoke runner is {seen.smoke_runner or 'missing'}")
    return found


def _corrected(profile: ContractProfile, seen: Capabilities) -> ContractProfile:
    return replace(
        profile,
        rollout_result="rollout_output" if seen.rollout_result == "rollout_output" else "custom_output",
        hooks=tuple(sorted(seen.methods & _known_hooks())),
        logprob_difference=seen.logprob_difference,
        lora_hook=seen.lora_hook,
        worker_extension=seen.worker_extension,
        request_batch_default=seen.request_batch_default,
        docs_link=(profile.docs_link or LINK) if seen.docs_links else None,
        docs_index=DOCS_INDEX if seen.docs_links else None,
        docs_link_check=seen.docs_link_check,
        smoke_runner=seen.smoke_runner,
        limits=seen.limits,
    )
