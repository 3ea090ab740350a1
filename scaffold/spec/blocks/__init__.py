"""What the tool must know of a block of ``templates/blocks``: whether a checkpoint has it, its sizes, its parameters.

A module here has the name of a role, and its classes those of the role's templates: ``Patches`` of ``latent_input``
stands for ``templates/blocks/latent_input_patches.py.jinja``.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from scaffold.remap import Rule

if TYPE_CHECKING:
    from scaffold.remap import Rule
    from scaffold.spec.section import Section

Shape = tuple[int, ...]
ROLES = ("latent_input", "latent_output")


class Block(Protocol):
    """What a class with an ``ORDER`` offers, which says who is asked first."""

    ORDER: int

    @staticmethod
    def find(section: Section, hidden: int) -> dict[str, Any] | None:
        """Return values of ``[architecture]`` where the checkpoint has this block, else None."""

    @staticmethod
    def parameters(architecture: Mapping[str, Any], latents: Mapping[str, Any]) -> dict[str, Shape]:
        """Return name and shape of each parameter."""

    @staticmethod
    def fields(architecture: Mapping[str, Any]) -> dict[str, Any]:
        """Return fields of the configuration that only this block needs, with their values."""


def kinds(role: str) -> dict[str, Block]:
    """Return the blocks that can play a role such as ``latent_input``, by kind, in the order they are asked."""
    module = importlib.import_module(f"{__name__}.{role}")
    found = {name.lower(): part for name, part in vars(module).items() if hasattr(part, "ORDER")}
    return dict(sorted(found.items(), key=lambda entry: (entry[1].ORDER, entry[0])))


def established(section: Section) -> tuple[Rule, ...]:
    """Return what chosen blocks know of the key map: rules for keys that names and shapes leave open."""
    architecture = section.before["architecture"]
    rules: list[Rule] = []
    for role in ROLES:
        known = getattr(kinds(role)[architecture.get(role) or "linear"], "known_rules", None)
        rules += known(section) if known is not None else ()
    path, origin = section.known("detail.modules.time") if "time_embedder" in architecture else (None, "")
    if path is not None and "." in path:
        rules.append(Rule(f"{path}.", f"{architecture['time_embedder']}.", origin=origin))
        embedder = (architecture.get("noise_rule") or {}).get("embedder")
        if embedder:
            rules.append(Rule(f"{path.rpartition('.')[0]}.{embedder}.", f"{embedder}.", origin=origin))
    return tuple(rules)


def recognised(role: str, section: Section, hidden: int) -> dict[str, Any]:
    """Return the values of the first block that the checkpoint has, its kind under ``role``; empty where none fits."""
    for kind, block in kinds(role).items():
        found = block.find(section, hidden)
        if found is not None:
            return {role: kind, **found}
    return {}
