"""A verl-omni checkout on disk: its root, its pin of vllm-omni, its contract profile."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from scaffold.errors import ScaffoldError
from scaffold.files.reading import expanded
from scaffold.target.capabilities import BASE_METHODS, DOCS_INDEX, Capabilities, capabilities, missing, version_of
from scaffold.target.pin import vllm_omni_asked, vllm_omni_pin
from scaffold.target.profile import ContractProfile, profiles

LINK = "docs/examples/{model}/flowgrpo_trainer_{model}.md"
_CARRIES = {
    "token_prompts": "a request carries more than token ids",
    "images_only": "results without images are taken",
    "prompt_only": "the agent loop sends more than the prompt and its media",
}


@dataclass(frozen=True)
class Checkout:
    """A folder known to hold verl-omni.

    Attributes:
        root: its resolved path.
        profile: the nearest release, corrected by the checkout's files.
        title: in words: a release, near one, or newer than all known ones.
        vllm_omni_pin: the version in its requirements, or None.
        notes: remarks for the user on unusual things.
        vllm_omni_asked: its requirement if no version is pinned, or None.
        newer: whether it is newer than every profile; its first note then says so, and what differs.
    """

    root: Path
    profile: ContractProfile
    title: str
    vllm_omni_pin: str | None
    notes: tuple[str, ...]
    vllm_omni_asked: str | None = None
    newer: bool = False

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
        pin, version = vllm_omni_pin(root), version_of(root)
        newer = _newer(seen, version, pin if nearest is profiles()[-1] else None)
        title, notes = nearest.title, []
        if newer:
            title = f"verl-omni newer than every profile ({'; '.join(newer)}), nearest to {nearest.title}"
            as_known = "and differs from it in nothing that is known"
            differs = f"and differs: {'; '.join(differences)}" if differences else as_known
            notes.append(f"the checkout is {title} {differs}")
        elif differences:
            title = f"a verl-omni near {nearest.title}"
            notes.append(f"the checkout is nearest to {nearest.title} but differs: {'; '.join(differences)}")
        if pin is None:
            notes.append(f"the checkout pins no one version of vllm-omni; {nearest.title} pins {nearest.vllm_omni}")
        elif pin != nearest.vllm_omni and not newer:
            notes.append(f"the checkout pins vllm-omni {pin}; {nearest.title} pins {nearest.vllm_omni}")
        notes += [
            f"whether {_CARRIES[limit]} could be neither found nor ruled out in {path}: it counts as not carried"
            for limit, path in seen.unsettled.items()
        ]
        if not seen.request_ids:
            notes.append("under which key a request carries the prompt's ids was not found in the checkout")
        if seen.named_media:
            notes.append(
                "the checkout takes media of a rollout by declared names alone and refuses bare images, "
                "which is what a rendered rollout adapter returns"
            )
        asked = vllm_omni_asked(root) if pin is None else None
        return cls(root, _corrected(nearest, seen), title, pin, tuple(notes), asked, bool(newer))

    @property
    def asked(self) -> str | None:
        """The checkout's pinned version of vllm-omni, else its requirement."""
        return self.vllm_omni_pin or self.vllm_omni_asked

    @classmethod
    def above(cls, folder: Path) -> Checkout | None:
        """Open the checkout that contains a folder, or is that folder; None if there is none."""
        place = folder.absolute()
        return next((cls.open(root) for root in (place, *place.parents) if missing(root) is None), None)


def profile_for_checkout(path: str | Path) -> ContractProfile:
    """Return the contract profile of a checkout; see `Checkout.open`."""
    return Checkout.open(path).profile


def _known_hooks() -> frozenset[str]:
    return frozenset(hook for profile in profiles() for hook in profile.hooks)


def _new_hooks(seen: Capabilities) -> list[str]:
    return sorted(seen.methods - _known_hooks() - BASE_METHODS)


def _newer(seen: Capabilities, version: str | None, pin: str | None) -> list[str]:
    """Return what shows that a checkout is newer than every profile; nothing if that is not known."""
    reasons = []
    if version is not None and _is_after(version, (profile.version for profile in profiles())):
        reasons.append(f"it is {version}")
    if pin is not None and _is_after(pin, (profile.vllm_omni for profile in profiles())):
        reasons.append(f"it pins vllm-omni {pin}")
    return reasons + [f"it has the hook {hook}" for hook in _new_hooks(seen)]


def _is_after(version: str, known: Iterable[str]) -> bool:
    from packaging.version import InvalidVersion, Version

    try:
        return Version(version) > max(map(Version, known))
    except InvalidVersion:
        return False


def _differences(profile: ContractProfile, seen: Capabilities) -> list[str]:
    """Return how the checkout differs from the profile, one phrase each."""
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
        ("the v1 trainer", profile.v1_entry_point is not None, seen.v1_entry_point is not None),
        ("a declaration of an adapter's media", profile.io_spec is not None, seen.io_spec is not None),
        ("actor_rollout_ref.model.lora.merge", profile.lora_merge, seen.lora_merge),
    ):
        if expected != actual:
            found.append(f"{name} is {'there' if actual else 'missing'}")
    if profile.use_v1 != seen.use_v1:
        found.append(f"trainer.use_v1 is {str(seen.use_v1).lower()} by default")
    if seen.request_ids and profile.request_ids != seen.request_ids:
        found.append(f"a request carries {' and '.join(seen.request_ids)}")
    if profile.named_media != seen.named_media:
        found.append(f"media are {'taken by declared names alone' if seen.named_media else 'bare'}")
    found += [f"DiffusionModelBase has {hook}, which no profile knows" for hook in _new_hooks(seen)]
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
        smoke_groups=seen.smoke_groups,
        models_page=seen.models_page,
        limits={**seen.limits, **seen.unsettled},
        entry_point=seen.entry_point,
        v1_entry_point=seen.v1_entry_point,
        use_v1=seen.use_v1,
        io_spec=seen.io_spec,
        request_ids=seen.request_ids or profile.request_ids,
        lora_merge=seen.lora_merge,
        named_media=seen.named_media,
    )
