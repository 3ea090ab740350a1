"""How the upstream pipeline drives its scheduler, as ``scaffold.toml`` keeps it or ``inspect`` reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scaffold.errors import ScaffoldError
from scaffold.inspect import inspect_pipeline
from scaffold.target.pin import vllm_omni_pin
from scaffold.upstream import locate

if TYPE_CHECKING:
    from scaffold.verify.package import Package

_FROM_SPEC = {
    "module": ("upstream", "module"),
    "class": ("upstream", "class"),
    "scheduler_attribute": ("upstream", "scheduler_attribute"),
    "kwargs_attribute": ("upstream", "scheduler_kwargs_attribute"),
    "arguments": ("upstream", "step_arguments"),
    "parameters": ("upstream", "step_parameters"),
    "sample_rank": ("upstream", "sample_rank"),
    "steps": ("upstream", "steps"),
    "shift": ("schedule", "shift"),
    "direction": ("schedule", "direction"),
    "kind": ("schedule", "kind"),
    "declared": ("cfg", "declared"),
    "parts": ("schedule", "parts"),
    "start_level": ("schedule", "start_level"),
    "highest_level": ("schedule", "highest_level"),
    "time": ("upstream", "time"),
    "output_sign": ("upstream", "output_sign"),
    "input_module": ("upstream", "input_module"),
    "ported": ("upstream", "ported"),
    "noise_scale": ("architecture", "noise_scale"),
    "noise_rule": ("architecture", "noise_rule"),
}
_FROM_FACTS = {
    "module": "detail.pipeline.module",
    "class": "detail.pipeline.class",
    "scheduler_attribute": "detail.scheduler.attribute",
    "kwargs_attribute": "detail.scheduler.kwargs_attribute",
    "arguments": "answers.scheduler.arguments",
    "keywords": "detail.scheduler.keywords",
    "sample_rank": "detail.scheduler.sample_rank",
    "steps": "answers.scheduler.steps",
    "shift": "answers.scheduler.shift",
    "direction": "answers.scheduler.direction",
    "inline": "answers.scheduler.inline",
    "trajectory": "answers.trajectory.fields",
    "scales": "answers.cfg.scales",
    "kind": "detail.schedule.kind",
    "parts": "detail.schedule.parts",
    "start_level": "detail.schedule.start_level",
}
_NEEDED = ("scheduler_attribute", "arguments", "sample_rank", "steps", "shift")


def upstream_loop(package: Package) -> dict[str, Any]:
    """Describe the denoising loop that the rollout adapter is called from.

    Returns:
        The names of ``_FROM_SPEC`` as far as they are known, with ``version`` of vllm-omni, and with ``unknown``, the
        reason, where the loop cannot be stood in for.
    """
    if package.spec:
        facts = {name: package.spec.get(section, {}).get(key) for name, (section, key) in _FROM_SPEC.items()}
        facts["version"] = package.spec.get("upstream", {}).get("version")
        prompt, tokens = package.spec.get("prompt", {}), package.spec.get("tokens", {})
        texts = {name: token.get("text") for name, token in tokens.items()}
        facts["prompt"] = _prompt(prompt.get("key"), texts, prompt.get("begin"), prompt.get("end"))
        if facts["prompt"] is not None and prompt.get("suffix") is not None:
            before, behind = (facts["prompt"][side] or "" for side in ("begin", "end"))
            if prompt.get("requested"):
                facts["prompt"]["around_request"] = [before, behind]
            facts["prompt"] |= {"begin": f"{before}{prompt.get('prefix')}", "end": f"{prompt['suffix']}{behind}"}
    elif package.upstream is None:
        return {"unknown": "no class of the package inherits from a pipeline of vllm_omni.diffusion.models"}
    else:
        try:
            facts = _inspected(package, *package.upstream)
        except ScaffoldError as error:
            return {"unknown": f"the upstream pipeline could not be read: {error.line}"}
    lacking = [name for name in _NEEDED if facts.get(name) is None]
    if lacking:
        facts["unknown"] = f"not known of the upstream pipeline: {', '.join(lacking)}"
    return facts


def _prompt(key: str | None, texts: dict[str, Any], begin: str | None, end: str | None) -> dict[str, Any] | None:
    """How upstream encodes a prompt: the request's key, all special tokens, those at both ends; None if not known."""
    markers = [text for text in texts.values() if text]
    if key is None or not markers or any(name and not texts.get(name) for name in (begin, end)):
        return None
    return {"key": key, "markers": markers, "begin": texts.get(begin or ""), "end": texts.get(end or "")}


def _inspected(package: Package, module: str, name: str) -> dict[str, Any]:
    source = locate(None, checkout_pin=vllm_omni_pin(package.root) if package.checkout else None)
    report = inspect_pipeline(source, f"{module}:{name}")
    facts = {name: report.fact(key).value for name, key in _FROM_FACTS.items()}
    facts["version"] = report.upstream.version
    facts["prompt"] = _prompt(
        report.fact("detail.prompt.key").value,
        dict(report.fact("detail.tokens.text").value or {}),
        report.fact("detail.prompt.begin_token").value,
        report.fact("detail.prompt.end_token").value,
    )
    keywords, arguments = facts.pop("keywords") or [], facts["arguments"] or []
    if len(keywords) == len(arguments):
        facts["parameters"] = [word or role for word, role in zip(keywords, arguments, strict=True)]
        facts["by_keyword"] = [bool(word) for word in keywords]
    return facts
