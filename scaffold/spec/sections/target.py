"""[target]: the contract profile of the verl-omni release that is written for."""

from scaffold.spec.section import Section


def fill(section: Section) -> None:
    """Put the profile's values."""
    profile = section.sources.profile
    for key, value in profile.context(section.sources.names.model).items():
        section.put(key, value, f"contract profile {profile.name}")
    section.put(
        "trainable_params_hook", "configure_trainable_params" in profile.hooks, f"contract profile {profile.name}"
    )
