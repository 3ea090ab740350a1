"""[upstream]: the pipeline that is subclassed and how it calls its scheduler."""

from scaffold.errors import RefusedError
from scaffold.spec.section import Section

ORDER = 10


def fill(section: Section) -> None:
    """Put module paths, request type and calling convention.

    Raises:
        RefusedError: one of the names that the rollout adapter must import or call is unknown.
    """
    report = section.sources.report
    section.put("version", report.upstream.version or f"from {report.upstream.label}", "version read")
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
        ("step_location", "detail.scheduler.step_location"),
        ("loop_location", "detail.scheduler.loop_location"),
        ("step_execution", "detail.step_execution"),
    ):
        section.fact(key, fact)
    section.put("step_parameters", _parameters(section), "facts answers.scheduler.arguments, detail.scheduler.keywords")
    denoiser, origin = section.known("answers.denoiser.class")
    method, _ = section.known("answers.denoiser.method")
    section.put("denoiser_method", f"{denoiser}.{method}" if denoiser and method else None, origin)
    needed = ("module", "class", "request_module", "request_class", "output_module", "output_class")
    for key in (*needed, "scheduler_attribute", "step_arguments", "step_parameters", "sample_rank"):
        if section.values[key] is None:
            raise RefusedError(
                f"{report.upstream.pipeline}: {key.replace('_', ' ')} could not be established from its source",
                hint="see `omni-scaffold inspect` for what is known; the rollout adapter cannot be rendered without it",
            )


def _parameters(section: Section) -> list[str] | None:
    """Return the names under which the rollout adapter's step takes its arguments: the caller's keywords, else ours."""
    arguments = section.values["step_arguments"]
    keywords, _ = section.known("detail.scheduler.keywords")
    if arguments is None or keywords is None or len(keywords) != len(arguments):
        return None
    return [
        keyword or ("sigma" if role == "timestep" else role) for role, keyword in zip(arguments, keywords, strict=True)
    ]
