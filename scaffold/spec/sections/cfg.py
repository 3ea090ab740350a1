"""[cfg]: classifier-free guidance, its formula from the source, its values from the recipe."""

from __future__ import annotations

from typing import Any

from scaffold.spec.section import Section

ORDER = 21


def fill(section: Section) -> None:
    """Put parameters and the part each plays, told by the kind of its default."""
    section.fact("branches", "answers.cfg.branches")
    section.fact("interval_rule", "detail.cfg.interval_rule")
    section.fact("epsilon", "detail.cfg.epsilon")
    section.fact("renorms", "answers.cfg.renorm")
    section.fact("formula", "detail.cfg.formula")
    upstream, origin = section.known("detail.cfg.parameters")
    scales, _ = section.known("answers.cfg.scales")
    recipe = section.sources.preset.value("cfg", "defaults") or {}
    parameters = [{"name": name, "default": recipe.get(name, default)} for name, default in (upstream or {}).items()]
    if recipe:
        origin += f"; preset {section.sources.preset.name}"
    section.put("parameters", parameters, origin)
    roles = _roles(upstream or {}, list(scales or {}))
    for role in ("text_scale", "image_scale", "interval", "renorm_type", "renorm_min"):
        section.put(role, roles.get(role), origin)


def _roles(parameters: dict[str, Any], scales: list[str]) -> dict[str, str]:
    roles = dict(zip(("text_scale", "image_scale"), scales, strict=False))
    for name, default in parameters.items():
        if name in scales:
            continue
        if isinstance(default, str):
            roles["renorm_type"] = name
        elif isinstance(default, list | tuple):
            roles["interval"] = name
        else:
            roles["renorm_min"] = name
    return roles
