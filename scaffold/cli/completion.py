"""Shell completion of pipelines, versions and ids, from data on this machine.

Nothing is fetched, since a shell asks on each press of the tab key.
"""

from __future__ import annotations

from collections.abc import Iterable

import typer

from scaffold.errors import ScaffoldError


def pipelines(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return registry keys and model folders of the version given in the command, else of the default one."""
    from scaffold.upstream import DEFAULT_VERSION, locate, read_registry
    from scaffold.upstream.at_hand import at_hand

    asked = ctx.params.get("vllm_omni")
    try:
        source = at_hand(asked or DEFAULT_VERSION) or (locate(asked) if asked and "/" in asked else None)
        registry = read_registry(source) if source is not None else {}
    except ScaffoldError:
        return []
    return _begun([*registry, *(folder for folder, _, _ in registry.values())], incomplete)


def versions(incomplete: str) -> list[str]:
    """Versions of vllm-omni that are pinned, kept or fetched."""
    from scaffold.upstream.cache import cache_root
    from scaffold.verify.rollout.pins import known_versions

    fetched = [path.name.split("-")[1] for path in sorted((cache_root() / "wheels").glob("vllm_omni-*.whl"))]
    own = [path.parent.name for path in sorted((cache_root() / "builds").glob("*/omni-scaffold.json"))]
    return _begun([*known_versions(), *fetched, *own], incomplete)


def rules(incomplete: str) -> list[str]:
    """Ids and names of the rules of ``check``."""
    from scaffold.check.catalogue import all_rules

    found = all_rules()
    return _begun([*(rule.id for rule in found), *(rule.name for rule in found)], incomplete)


def contracts(incomplete: str) -> list[str]:
    """Ids of the contracts of ``verify``."""
    from scaffold.verify.catalogue import catalogue

    return _begun((entry.id for entry in catalogue()), incomplete)


def _begun(words: Iterable[str], incomplete: str) -> list[str]:
    return [word for word in dict.fromkeys(words) if word.startswith(incomplete)]
