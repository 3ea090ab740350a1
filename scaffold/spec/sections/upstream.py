"""[upstream]: the pipeline that is subclassed and how it calls its scheduler."""

import ast

from scaffold.spec.section import Section

# Attribute of the rollout adapter that holds the scheduler where upstream has none to replace, and what its step takes.
OWN_SCHEDULER = "sde_scheduler"
ROLES = ("model_output", "timestep", "sample")


def fill_upstream(section: Section) -> None:
    """Put module paths, request type and calling convention, as the rollout adapter imports and calls them."""
    report = section.sources.report
    section.put("version", report.upstream.version or f"from {report.upstream.label}", "version read")
    if report.task is not None:
        section.put("task", report.task, "flag --task")
    _put_own(section)
    for key, fact in (
        ("registry_key", "detail.pipeline.registry_key"),
        ("module", "detail.pipeline.module"),
        ("class", "detail.pipeline.class"),
        ("request_module", "detail.request.module"),
        ("request_class", "detail.request.class"),
        ("config_module", "detail.config.module"),
        ("config_class", "detail.config.class"),
        ("output_module", "detail.output.module"),
        ("output_class", "detail.output.class"),
        ("scheduler_attribute", "detail.scheduler.attribute"),
        ("scheduler_kwargs_attribute", "detail.scheduler.kwargs_attribute"),
        ("step_arguments", "answers.scheduler.arguments"),
        ("sample_rank", "detail.scheduler.sample_rank"),
        ("steps", "answers.scheduler.steps"),
        ("loop_location", "detail.scheduler.loop_location"),
    ):
        section.fact(key, fact)
    if section.values["registry_key"] is None:
        section.put("registry_key", report.upstream.pipeline, "the class, which no registry names")
    section.put("step_parameters", _parameters(section), "facts answers.scheduler.arguments, detail.scheduler.keywords")
    if section.says("answers.scheduler.inline", True):
        _put_ported(section)
    elif section.values["scheduler_attribute"] is None:
        _put_constructed(section)
    _pin_shift(section)
    if section.sources.preset.value(section.name, "replaced"):
        section.preset("replaced")
    made, origin = section.known("detail.post_process")
    if made:
        section.put("post_process", made, origin)
    denoiser, origin = section.known("answers.denoiser.class")
    method, _ = section.known("answers.denoiser.method")
    section.put("denoiser_method", f"{denoiser}.{method}" if denoiser and method else None, origin)
    needed = ("module", "class", "request_module", "request_class", "output_module", "output_class")
    for key in (*needed, "scheduler_attribute", "step_arguments", "step_parameters", "sample_rank"):
        if section.values[key] is None:
            section.lacks(
                f"{report.upstream.pipeline}: {key.replace('_', ' ')} could not be established from its source",
                hint="see `omni-scaffold inspect` for what is known; the rollout adapter cannot be rendered without it",
            )


def _put_own(section: Section) -> None:
    """Put what the pipeline does where a request does not ask: what comments of the knobs compare with."""
    sizes, _ = section.known("detail.request.sizes")
    packed, _ = section.known("detail.cfg.parameters")
    scales, origin = section.known("answers.cfg.scales")
    shift, _ = section.known("answers.scheduler.shift")
    recipe = section.sources.preset.value("cfg", "defaults") if scales is None else None
    guidance = dict.fromkeys(recipe or ()) | dict(scales or {}) | {e["name"]: e["default"] for e in packed or ()}
    own = {f"recipe.{name}": value for name, value in (sizes or {}).items()} | {"schedule.shift": shift}
    own |= {f"{section_}.defaults.{name}": v for section_ in ("cfg", "guidance") for name, v in guidance.items()}
    section.put("guidance", list(guidance), origin)
    section.put("own", {name: value for name, value in own.items() if value is not None}, origin)


def _put_ported(section: Section) -> None:
    """Put what the rollout adapter overrides where the loop writes the update out: our scheduler takes its place.

    Raises:
        ScaffoldError: the method around the update cannot be taken over.
    """
    statement, origin = section.known("detail.update.statement")
    text, place = section.known("detail.update.method")
    if statement is None or text is None:
        return
    given = ", ".join(statement[role] for role in ROLES)
    step = f"{statement['sample']} = self.{OWN_SCHEDULER}.step({given}).prev_sample"
    _put_method(section, statement["method"], (text, place), {statement["text"]: step}, origin)
    section.fact("sample_rank", "detail.update.rank")
    if section.says("answers.scheduler.direction", "ascending"):
        # Upstream's time runs from noise to image: its velocity is the negative of dx / dsigma.
        section.put("time", "1 - sigma", "fact answers.scheduler.direction")
        section.put("output_sign", -1, "fact answers.scheduler.direction")
    guidance = {entry["name"] for entry in section.known("detail.cfg.parameters")[0] or ()}
    settings, origin = section.known("detail.request.settings")
    pinned = {name: value for name, value in (settings or {}).items() if name not in guidance}
    if pinned:
        section.put("pinned", pinned, origin)
    section.known_fact("default_seed", "detail.request.default_seed")
    section.known_fact("input_module", "detail.modules.input")


def _pin_shift(section: Section) -> None:
    """Pin the setting of a request that asks for the recipe's time shift, where the pipeline's own is another."""
    recipe = section.sources.preset.value("schedule", "shift")
    if recipe is None or section.says("answers.scheduler.shift", recipe):
        return
    setting, place = section.known("detail.scheduler.shift_setting")
    if setting is None:
        own = section.known("answers.scheduler.shift")[0]
        section.lacks(f"the recipe's time shift is {recipe}, the pipeline's {own}, and no request asks for another")
        return
    origin = f"{place}; preset {section.sources.preset.name}"
    section.put("pinned", {**section.values.get("pinned", {}), setting: float(recipe)}, origin)


def _put_constructed(section: Section) -> None:
    """Put what the rollout adapter overrides where the loop's method makes its scheduler: ours takes its place.

    What the update does to the step's result, such as rounding it, goes with the update.

    Raises:
        ScaffoldError: the method around the loop cannot be taken over.
    """
    made, origin = section.known("detail.construction.statement")
    text, place = section.known("detail.construction.method")
    given = _given(made["call"], section.values["step_arguments"]) if made is not None else {}
    if text is None or not set(ROLES) <= set(given):
        return
    arguments = ", ".join(given[role] for role in ROLES)
    replaced = {
        made["text"]: f"{made['name']} = self.{OWN_SCHEDULER}.following({made['text'].partition(' = ')[2]})",
        made["update"]: f"{made['sample']} = {made['name']}.step({arguments}).prev_sample",
    }
    _put_method(section, made["method"], (text, place), replaced, origin)
    section.fact("sample_rank", "detail.patches.rank")
    told, told_at = section.known("detail.time.step")
    if told not in (None, "sigma"):
        section.put("time", told, told_at)
    negated = bool(section.known("answers.scheduler.negated")[0])
    if bool(section.known("detail.prediction.toward_clean")[0]) is not negated:
        section.put("output_sign", -1, "facts answers.scheduler.negated, detail.prediction.toward_clean")


def _given(call: str, roles: list[str] | None) -> dict[str, str]:
    """Return the text of each argument of a call, by the part that it plays."""
    node = ast.parse(call, mode="eval").body
    texts = (
        [ast.unparse(a) for a in (*node.args, *(k.value for k in node.keywords))] if isinstance(node, ast.Call) else []
    )
    return dict(zip(roles or (), texts, strict=False))


def _parameters(section: Section) -> list[str] | None:
    """Return the names under which the rollout adapter's step takes its arguments: the caller's keywords, else ours."""
    arguments = section.values["step_arguments"]
    keywords, _ = section.known("detail.scheduler.keywords")
    if arguments is None or keywords is None or len(keywords) != len(arguments):
        return None
    return [
        keyword or ("sigma" if role == "timestep" else role) for role, keyword in zip(arguments, keywords, strict=True)
    ]


def _put_method(section: Section, name: str, source: tuple[str, str], replaced: dict[str, str], origin: str) -> None:
    """Put the copy of a method in which our scheduler steps; ``source`` is its text and where that stands."""
    from scaffold.port.method import port_method

    text, place = source
    method = port_method(text, section.values["class"], replaced)
    ported = {"method": name, "text": method.text, "names": list(method.names)}
    section.put("ported", {**ported, "location": place.rpartition(", ")[2]}, place)
    section.put("scheduler_attribute", OWN_SCHEDULER, origin)
    section.put("step_arguments", list(ROLES), origin)
    section.put("step_parameters", list(ROLES), origin)
