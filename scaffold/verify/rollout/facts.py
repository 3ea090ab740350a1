"""The facts a comparison needs, from the package's spec, else from the pipeline it inherits from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaffold.errors import ScaffoldError
from scaffold.files.documents import MalformedError, parse_json
from scaffold.files.reading import read_text
from scaffold.inspect import inspect_pipeline
from scaffold.spec import find_preset
from scaffold.upstream import locate
from scaffold.verify.declared import FILE, TABLE
from scaffold.verify.package import Package, declared_lists, embedded_length, merges_lora, unwritten_places
from scaffold.verify.rollout.engine_side.tiny.shrink import small_file

if TYPE_CHECKING:
    from scaffold.verify.rollout.environment import Environment

ALGORITHM_SUFFIX = "_flow_grpo"


class NotEstablishedError(Exception):
    """A fact that every comparison needs is unknown; the message names it."""


def model_name(package: Package) -> str:
    """The model's part of the package's name."""
    return str(package.spec.get("names", {}).get("model") or package.name.removesuffix(ALGORITHM_SUFFIX))


def records(package: Package) -> bool:
    """Whether its rollout records the denoiser's calls: a ported one's, or one of diffusers."""
    port = package.spec.get("port", {})
    return bool(port.get("entry")) or port.get("form") == "diffusers"


def gather_facts(package: Package, environment: Environment, checkpoint: Path | None = None) -> dict[str, Any]:
    """Return what the scenarios need, as plain values.

    Args:
        package: what is verified.
        environment: its vllm-omni is read where the package has no spec.
        checkpoint: of whose configuration the tiny one of a ported package has its settings.

    Raises:
        NotEstablishedError: the size of a latent token is unknown.
    """
    if records(package):
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
        "embedded": embedded_length(package),
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
    """Return scales for requests with images, all of them on so that all branches run: one off by default is raised."""
    return {name: max(float(defaults[name]), neutral + 1) for name in names}


def _guidance(name: str | None, scale: Any) -> dict[str, Any]:
    """Return the guidance; a scale of one or less means none, so there is nothing to compare with and without it."""
    usable = name is not None and isinstance(scale, int | float) and scale > 1.0
    return {"name": name if usable else None, "scale": float(scale) if usable else None}


# Pixels of one of the image's four parts a side, to begin with; a request that fails is made larger.
PIXELS = 16
FRAMES = 5


def filled_guidance(sections: Mapping[str, Any]) -> dict[str, Any]:
    """Scales that VeRL-Omni sends with every request, as the package's launch script sets them."""
    cfg = sections.get("guidance", {})
    defaults = cfg.get("defaults") or {}
    return {entry["name"]: defaults[entry["scale"]] for entry in cfg.get("filled") or [] if entry["scale"] in defaults}


def _fused_names(sections: Mapping[str, Any]) -> list[str]:
    """Layers that a checkpoint may have as one tensor: the parts' own names say it, then the engine's names."""
    stacked = sections.get("checkpoint", {}).get("stacked") or []
    engine = [entry["name"] for entry in sections.get("port", {}).get("fused") or []]
    whole = sections.get("verify", {}).get("whole") or []
    return list(dict.fromkeys([*whole, *engine, *(str(row[0]).strip(".") for row in stacked)]))


# Files beside a checkpoint's weights that say nothing of sizes.
_OTHERS = ("config.json", "model_index.json", "generation_config.json", "preprocessor_config.json")
_CHANNELS = ("in_channels", "out_channels")  # of the latents, which the autoencoder has, too


def _of_checkpoint(folder: Path, attribute: str) -> dict[str, dict[str, Any]]:
    """What a checkpoint's own files say of the denoiser, of schedulers and of what a pipeline reads by itself.

    Sizes are made small. Those of other components stay as they are, under ``released``: what is small for one of
    them is known where it is made.
    """
    named = [folder / name for name in (f"{attribute}/config.json", "transformer/config.json", "config.json")]
    place = next((path for path in named if path.is_file()), None)
    denoiser = _read(place) if place is not None else {}
    files = {
        path.name: small_file(_read(path))
        for path in sorted(folder.glob("*.json"))
        if path.name not in _OTHERS and "token" not in path.name and not path.name.endswith(".index.json")
    }
    small = small_file(denoiser) | {n: denoiser[n] for n in _CHANNELS if n in denoiser}
    beside = {path.parent.name: _read(path) for path in sorted(folder.glob("*/config.json")) if path != place}
    return {
        "denoiser": small,
        "components": {path.parent.name: _read(path) for path in sorted(folder.glob("*/scheduler_config.json"))},
        "files": files,
        "released": beside,
    }


def _read(path: Path) -> dict[str, Any]:
    try:
        found = parse_json(read_text(path))
    except (OSError, MalformedError) as error:
        raise NotEstablishedError(f"{path.name} of the checkpoint cannot be read: {error}") from None
    settings = found if isinstance(found, dict) else {}
    return {name: value for name, value in settings.items() if not name.startswith("_")}


def ported_facts(package: Package, checkpoint: Path | None = None) -> dict[str, Any]:
    """Return the facts of ``gather_facts`` and, under ``ported``, what a tiny checkpoint is made from.

    Hand-written settings of a tiny model stand in ``[verify]`` of ``scaffold.toml``: ``denoiser`` and ``request`` are
    tables of values, ``components`` one table for each folder of the checkpoint, ``files`` one for each file that a
    pipeline reads by itself, ``tokens`` the special tokens that no source spells out, and ``stages`` what stages before
    the pipeline hand on. What they do not say is taken from the configuration files of ``checkpoint``, sizes made
    small; ``released`` is the configuration of each further component, as it is.

    Raises:
        NotEstablishedError: the package says of something that it is still to be written, or that VeRL-Omni cannot
            send its requests.
    """
    sections = package.spec
    # What the sources say now: the spec lists what was left to write when they were rendered.
    left = unwritten_places(package)
    if left:
        more = f", and {len(left) - 1} more" if len(left) > 1 else ""
        raise NotEstablishedError(f"still to be written: {left[0]}{more}")
    refuses = sections.get("grade", {}).get("refuses")
    if refuses:
        raise NotEstablishedError(f"no request reaches a rollout: {refuses}")
    cfg, port, names, media = (sections.get(name, {}) for name in ("guidance", "port", "names", "media"))
    defaults = cfg.get("defaults") or {}
    scale = defaults.get(cfg.get("scale"))
    neutral = 1.0 if cfg.get("neutral") is None else float(cfg["neutral"])
    # A scale that may be off by default is on, so that all branches run.
    scale = (float(scale) if scale > 1.0 else 2.0) if isinstance(scale, int | float) else None
    given = sections.get("verify", {})
    own = _of_checkpoint(checkpoint, sections.get("loading", {}).get("attribute") or "") if checkpoint else {}
    staged = sections.get("deploy", {}).get("position") is not None
    if staged and not given.get("stages"):
        what = "what the stages before hand on to the pipeline"
        raise NotEstablishedError(f"{what}: set the shapes in [verify.stages] of scaffold.toml")
    edit = sections.get("upstream", {}).get("task") is not None
    numbers = [name for name, value in defaults.items() if edit and isinstance(value, int | float)]
    others = raised([name for name in numbers if name != cfg.get("scale")], defaults, neutral)
    others |= {cfg["scale"]: scale} if scale is not None and scale != defaults.get(cfg["scale"]) else {}
    return {
        "pixels_per_token": PIXELS,
        "noise_level": float(sections.get("recipe", {}).get("noise_level") or 0.7),
        "sizes": None,
        "embedded": embedded_length(package),
        "prompt": {
            "begin": None,
            "end": None,
            "add_special_tokens": False,
            "chat_template": True,
            "column": "prompt_token_ids",
            "around": None,
        },
        "guidance": {
            "name": None if scale is None else cfg.get("scale"),
            "scale": scale,
            "neutral": neutral,
            "others": others,
            "filled": filled_guidance(sections),
        },
        "lora": {
            "targets": declared_lists(package).get("target_modules") or [],
            "sync": "merge" if merges_lora(package) else sections.get("lora", {}).get("sync"),
        },
        "ported": {
            "model": names.get("model"),
            "loaded": port.get("form") == "diffusers",
            "entry": port.get("entry"),
            "module": port.get("module"),
            "class": port.get("class"),
            "method": port.get("method") or "forward",
            "attribute": sections.get("loading", {}).get("attribute"),
            "fused": port.get("fused") or [],
            "fused_names": _fused_names(sections),
            "reads": bool(port.get("reads") and not port.get("handed")),
            "file": bool(port.get("file")),
            "own": bool(port.get("own")),
            "tokenizer": port.get("tokenizer"),
            "lora": declared_lists(package).get("target_modules") or [],
            "pipeline": sections.get("upstream", {}).get("registry_key"),
            "renames": sections.get("checkpoint", {}).get("renames") or [],
            "frames": FRAMES if sections.get("recipe", {}).get("framed") else None,
            "media": media.get("inputs") or [],
            "required": media.get("required") or [],
            "references": edit,
            "additional_config": sections.get("deploy", {}).get("additional_config") or {},
            "staged": staged,
            "given": {
                name: {**own.get(name, {}), **(given.get(name) or {})}
                for name in ("denoiser", "components", "request", "files", "stages", "released")
            },
            "tokens": given.get("tokens") or [],
            "area": given.get("area"),
        },
    }
