"""What is trained, and the tiny model that a smoke test trains: [lora], [tiny]."""

from __future__ import annotations

import re
from typing import Any

from scaffold.remap import Dropped, KeyMap
from scaffold.spec.architecture import parameters
from scaffold.spec.configuration import ROOT
from scaffold.spec.section import Section

# Where the actor's names put the layers of the training module.
SENT_UNDER = "transformer.layers"


def fill_lora(section: Section) -> None:
    """Put the targets: the projections that latent tokens go through."""
    architecture = section.before["architecture"]
    suffix = architecture["experts"] or ""
    inner = ["gate_proj", "up_proj", "down_proj"] if architecture["mlp"] == "swiglu" else ["up_proj", "down_proj"]
    targets = [f"{name}_proj{suffix}" for name in "qkvo"] + [f"mlp{suffix}.{name}" for name in inner]
    section.put("targets", targets, "projections of the latent pathway")
    section.put("trainable", [suffix.strip("_")] if suffix else ["layers."], "parameters of the latent pathway")
    section.put("layer_prefixes", ["layers."], "name of the layer list in the training module")
    section.put("linears", _linears(section), "shapes of the training module")
    section.preset("rank", 64)
    section.preset("alpha", 128)
    section.put("sync", *_sync(section))
    put_merge(section)
    if section.values["sync"] == "fold" and _builds_no_more(section):
        section.put("placeholder", "spare", section.known("answers.checkpoint.ignored")[1])
    elif section.values["sync"] == "fold" and _drops_heads_alone(section):
        section.put("placeholder", "plain", section.sources.headers_origin)


def put_merge(section: Section) -> None:
    """Put ``merge`` where the release has it: whether the trainer merges an adapter and pushes all weights.

    What a package does itself sends the two small matrices of each layer in place of every weight, so it goes first.
    """
    if section.before["target"]["lora_merge"]:
        origin = f"contract profile {section.sources.profile.name}"
        section.put("merge", section.values["sync"] == "merge", origin)


def _linears(section: Section) -> list[str]:
    """Names of the linear layers of the training module, ``*`` for the number of a layer."""
    shapes = parameters(section.before["architecture"], section.before["latents"])
    weights = [name for name, shape in shapes.items() if name.endswith(".weight") and len(shape) == 2]
    names = dict.fromkeys(re.sub(r"\.\d+\.", ".*.", name.removesuffix(".weight"), count=1) for name in weights)
    return [name for name in names if name != "embed_tokens"]


def _sync(section: Section) -> tuple[str | None, str]:
    """Return how the rollout gets the adapter: ``fold`` where verl-omni has a hook, the engine's own ``adapter``
    manager where it can wrap every target, ``fold`` through a worker class of the package where the rollout takes
    one, ``merge`` where the trainer can merge it into what it pushes, else ``none``.

    The manager looks modules up by name: weights that the loader puts into a module inside a packed one are out of
    its reach. Layers that the pipeline keeps under the very name under which the actor sends them need no hook.
    """
    target, profile = section.before["target"], f"contract profile {section.sources.profile.name}"
    if target["lora_hook"] and not section.says("detail.layers.path", [SENT_UNDER]):
        return "fold", profile
    otherwise = "fold" if target["worker_extension"] else "merge" if target["lora_merge"] else "none"
    stacked, origin = section.known("answers.checkpoint.stacked")
    renames, _ = section.known("answers.checkpoint.renames")
    if stacked is None or renames is None:
        return otherwise, f"{origin}; {profile}"
    sources = [source for _, source, _ in stacked] + [source for source, _ in renames]
    places = [target for target, _, _ in stacked] + [target for _, target in renames]
    suffix = section.before["architecture"]["experts"] or ""
    projections = [f"{name}_proj{suffix}" for name in "qkvo"]
    for source, place in zip(sources, places, strict=True):
        if source.strip(".") in projections and "." in place.strip("."):
            return otherwise, f"{origin}; {profile}"
    return "adapter", origin


def _drops_heads_alone(section: Section) -> bool:
    """Whether all that training leaves out are heads over the vocabulary, which no engine has as a linear layer that
    an adapter could be bound to."""
    tensors, hidden = section.sources.headers.tensors, section.before["architecture"]["hidden_size"]
    rules = KeyMap.from_data(section.before["checkpoint"]["rules"])
    dropped = [tensor.shape for name, tensor in tensors.items() if isinstance(rules.apply(name), Dropped)]
    vocabulary = section.before["architecture"]["vocab_size"]
    return bool(dropped) and all(shape == (vocabulary, hidden) for shape in dropped)


def _builds_no_more(section: Section) -> bool:
    """Whether the loader passes over all that training leaves out, so that the engine has no module for it."""
    ignored = section.sources.report.fact("answers.checkpoint.ignored").value
    dropped = [rule["source"] for rule in section.before["checkpoint"]["rules"] if rule["op"] == "drop"]
    passed = tuple(name.removesuffix("weight") for name in ignored or ())
    return bool(passed) and all(source.startswith(passed) for source in dropped)


PROMPT_LENGTH = 128  # tokens of a prompt of the smoke test; the template of its scripts has it, too


def fill_tiny(section: Section) -> None:
    """Take the preset's section; a token that the source writes as a number stands for itself."""
    fixed = {f"${name}": token["id"] for name, token in section.before["tokens"].items() if not token["text"]}
    for key, value in section.sources.preset.sections.get(section.name, {}).items():
        section.put(key, _replaced(value, fixed), f"preset {section.sources.preset.name}")
    _put_noise(section)
    _put_prompt_length(section)


def _put_prompt_length(section: Section) -> None:
    """Make room for the texts around a prompt: the tiny tokenizer may take a token for each of their bytes."""
    prompt = section.before["prompt"]
    around = "".join(prompt.get(side) or "" for side in ("prefix", "suffix")).encode()
    if section.values and around and "max_prompt_length" not in section.values:
        section.put("max_prompt_length", PROMPT_LENGTH + len(around), "bytes of prompt.prefix and prompt.suffix")


def _put_noise(section: Section) -> None:
    """Give the tiny configuration the noise of the checkpoint: its blocks are those that the module has."""
    rule = section.sources.preset.value("architecture", "noise_rule")
    root = (section.values.get("configs") or {}).get(ROOT)
    if rule is None or root is None:
        return
    chosen = section.before["architecture"].get("noise_rule")
    root[rule["embedding"]] = bool(chosen and chosen["embedder"])
    for name, path in rule["paths"].items():
        root[path] = chosen["fields"][name] if chosen else rule["neutral"][name]


def _replaced(value: Any, fixed: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        return {key: _replaced(entry, fixed) for key, entry in value.items()}
    if isinstance(value, list):
        return [_replaced(entry, fixed) for entry in value]
    return fixed.get(value, value) if isinstance(value, str) else value
