"""[cfg]: classifier-free guidance, its formula from the source, its values from the recipe."""

from __future__ import annotations

from scaffold.spec.section import Section

_BRANCHES = "answers.cfg.branches"
_DECIDING = {
    _BRANCHES: "how many branches guidance has",
    "answers.cfg.interval": "at which steps guidance acts",
    "answers.cfg.renorm": "whether guidance rescales its result",
    "detail.cfg.formula": "how guidance combines its branches",
}


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
    defaults = {entry["name"]: recipe.get(entry["name"], entry["default"]) for entry in upstream or []}
    if recipe:
        origin += f"; preset {section.sources.preset.name}"
    section.put("defaults", defaults, origin)
    for role, name in zip(("text_scale", "image_scale"), list(scales or {}), strict=False):
        section.put(role, name, "order of answers.cfg.scales")
    section.fact("interval", "detail.cfg.interval_parameter")
    section.fact("renorm_type", "detail.cfg.renorm_parameter")
    taken = {section.values.get(role) for role in ("text_scale", "image_scale", "interval", "renorm_type")}
    left = [entry["name"] for entry in upstream or [] if entry["name"] not in taken]
    if len(left) > 1:
        section.lacks(f"the part that {', '.join(left)} play in guidance could not be established from the source")
    section.put("renorm_min", left[0] if len(left) == 1 else None, "the guidance parameter that is left")
    section.values.setdefault("text_scale", None)
    section.values.setdefault("image_scale", None)
    _put_declared(section)
    _require_known(section)


def _require_known(section: Section) -> None:
    """Note what decides a step and is unknown: nothing is there only where that is certain."""
    facts = section.sources.report
    for name, what in _DECIDING.items():
        if facts.fact(name).confidence == "unknown" and (section.values.get("branches") != 1 or name == _BRANCHES):
            section.lacks(f"{what} could not be established from the source ({name} is unknown)")


def _put_declared(section: Section) -> None:
    """Put the parameters that are fields of a request's sampling settings and not among its extra arguments."""
    facts = section.sources.report
    fields, extra = (facts.fact(f"answers.prompt.{name}").value or () for name in ("sampling_params", "extra_args"))
    declared = [name for name in section.values["defaults"] if name in fields and name not in extra]
    if declared:
        section.put("declared", declared, section.known("answers.prompt.sampling_params")[1])
