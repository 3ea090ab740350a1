"""What drives a comparison: from the package's spec, else from the pipeline that it inherits from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaffold.errors import ScaffoldError
from scaffold.inspect import inspect_pipeline
from scaffold.spec import find_preset
from scaffold.upstream import locate
from scaffold.verify.declared import FILE, TABLE
from scaffold.verify.package import Package, declared_lists, merges_lora

if TYPE_CHECKING:
    from scaffold.verify.rollout.environment import Environment

ALGORITHM_SUFFIX = "_flow_grpo"


class NotEstablishedError(Exception):
    """Something that no comparison can do without is unknown; the text says what."""


def model_name(package: Package) -> str:
    """The model's part of the package's name."""
    return str(package.spec.get("names", {}).get("model") or package.name.removesuffix(ALGORITHM_SUFFIX))


def gather_facts(package: Package, environment: Environment, checkpoint: Path | None = None) -> dict[str, Any]:
    """Return what the scenarios need, as plain values.

    Args:
        package: what is verified.
        environment: its vllm-omni is read where the package has no spec.
        checkpoint: of whose configuration the tiny one of a ported package has its settings.

    Raises:
        NotEstablishedError: the size of a latent token is unknown.
    """
    if package.spec.get("port", {}).get("entry"):
        from scaffold.verify.rollout.ported_facts import ported_facts

        return ported_facts(package, checkpoint)
    known = _of_spec(package.spec) if package.spec else _of_pipeline(package, environment)
    declared = package.declared
    pixels = declared.pixels_per_token
    if pixels is None and (not known["downsample"] or not known["patch"]):
        raise NotEstablishedError(
            "how many pixels a latent token stands for is not known: neither scaffold.toml nor the upstream pipeline"
            f" gives downsample and patch; {FILE} beside the package has to say [{TABLE}] image, latents and patch:"
            " `omni-scaffold verify PACKAGE --init` writes it"
        )
    if declared.guidance is not None:
        known["guidance"] = _guidance(declared.guidance, declared.scale)
    return {
        "pixels_per_token": pixels or int(known["downsample"]) * int(known["patch"]),
        "declared": asdict(declared) if declared.place else None,
        "prompts": str(package.root / declared.data) if declared.data else None,
        "noise_level": float(known["noise_level"] or 0.7),
        "sizes": known.get("sizes"),
        "prompt": known["prompt"],
        "guidance": known["guidance"],
        "media": known.get("media") or [],
        "lora": {
            "targets": declared_lists(package).get("target_modules") or [],
            "sync": "merge" if merges_lora(package) else known["sync"],
        },
    }


def _of_spec(sections: dict[str, Any]) -> dict[str, Any]:
    latents, prompt, cfg = sections.get("latents", {}), sections.get("prompt", {}), sections.get("cfg", {})
    tokens = {name: entry.get("text") for name, entry in sections.get("tokens", {}).items()}
    defaults = cfg.get("defaults") or {}
    media = sections.get("media", {}).get("inputs") or []
    return {
        "downsample": latents.get("downsample"),
        "patch": latents.get("patch"),
        "noise_level": sections.get("recipe", {}).get("noise_level"),
        "sizes": _sizes(latents.get("sizes_module"), latents.get("sizes_constant"), latents.get("sizes")),
        "prompt": _prompt(
            tokens,
            prompt.get("begin"),
            prompt.get("end"),
            prompt.get("add_special_tokens"),
            prompt.get("chat_template"),
            prompt.get("column"),
        )
        | {"around": None if prompt.get("suffix") is None else [prompt.get("prefix") or "", prompt["suffix"]]},
        "guidance": _guidance(cfg.get("text_scale"), defaults.get(cfg.get("text_scale")))
        | ({"others": raised([cfg["image_scale"]], defaults)} if media and cfg.get("image_scale") else {}),
        "media": media,
        "sync": sections.get("lora", {}).get("sync"),
    }


def _of_pipeline(package: Package, environment: Environment) -> dict[str, Any]:
    if package.upstream is None:
        raise NotEstablishedError("no class of the package has a pipeline of vllm-omni as its base")

    module, name = package.upstream
    try:
        report = inspect_pipeline(locate(str(environment.site_packages)), f"{module}:{name}")
    except ScaffoldError as error:
        raise NotEstablishedError(
            f"the package has no scaffold.toml, and its pipeline does not tell: {error}"
        ) from None

    def fact(key: str) -> Any:
        found = report.facts.get(key)
        return None if found is None or found.confidence == "unknown" else found.value

    scales = fact("answers.cfg.scales") or {}
    text_scale = next(iter(scales), None)
    recipe = find_preset(model_name(package), fact("detail.pipeline.registry_key")).value("cfg", "defaults") or {}
    return {
        "downsample": fact("answers.vae.downsample"),
        "patch": fact("detail.latents.patch"),
        "noise_level": None,
        "sizes": _sizes(
            fact("detail.image.sizes_module"), fact("detail.image.sizes_constant"), fact("detail.image.sizes")
        ),
        "prompt": _prompt(
            fact("detail.tokens.text") or {},
            fact("detail.prompt.begin_token"),
            fact("detail.prompt.end_token"),
            fact("detail.prompt.add_special_tokens"),
            fact("detail.prompt.chat_template"),
            None,
        ),
        "guidance": _guidance(text_scale, recipe.get(text_scale, scales.get(text_scale))),
        "sync": None,
    }


def _sizes(module: str | None, constant: str | None, sizes: Any) -> dict[str, Any] | None:
    """The table of sizes that the pipeline chooses from, where it has one."""
    return {"module": module, "constant": constant, "sizes": sizes} if module and constant and sizes else None


def _prompt(
    tokens: dict[str, Any], begin: str | None, end: str | None, special: Any, chat: Any, column: str | None
) -> dict[str, Any]:
    return {
        "begin": None if begin is None else tokens.get(begin),
        "end": None if end is None else tokens.get(end),
        "add_special_tokens": bool(special),
        "chat_template": bool(chat),
        "column": column or "prompt_token_ids",
        "around": None,
    }


def raised(names: Iterable[str], defaults: Mapping[str, Any], neutral: float = 1.0) -> dict[str, float]:
    """Scales that are on where a request brings images, so that all branches run: one off by default is one above."""
    return {name: max(float(defaults[name]), neutral + 1) for name in names}


def _guidance(name: str | None, scale: Any) -> dict[str, Any]:
    """A scale of one or less is not guidance, so nothing can be compared with and without it."""
    usable = name is not None and isinstance(scale, int | float) and scale > 1.0
    return {"name": name if usable else None, "scale": float(scale) if usable else None}
