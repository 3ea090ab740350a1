"""Sections of a partial package's spec that its scripts are rendered from: model, data and training settings.

A value that the facts lack stays unset; the script then requires a variable for it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from scaffold.grade.established import Established
from scaffold.port.linears import find_layout, layer_counts
from scaffold.source.syntax import walk_tree
from scaffold.spec.section import Section
from scaffold.spec.sections import recipe as recipes
from scaffold.spec.sections.training import put_merge
from scaffold.upstream import UpstreamSource

if TYPE_CHECKING:
    from scaffold.port import Port
    from scaffold.upstream import UpstreamSource


# What a pipeline needs before the engine can load it: a prepared checkpoint, further libraries.

INDEX = "model_index.json"  # the file from which the engine reads a pipeline's class
_WRITES = frozenset({"write_text", "dump"})
_INSTALL = re.compile(r"`(pip install [\w.,/ \[\]'-]+)`", re.ASCII)


def put_rollout_setup(section: Section, source: UpstreamSource) -> None:
    """Put ``prepare``, the function of the pipeline's module that prepares a checkpoint, and ``installs``.

    ``prepare`` has the function's name, and as ``arguments`` the model's own settings that it accepts. The function is
    not called within the module, requires no argument but the checkpoint, and writes the index, directly or through a
    call.

    Args:
        section: ``deploy``, with the model's own settings that the package fixes.
        source: the version of vllm-omni.
    """
    file = section.sources.report.upstream.module.replace(".", "/") + ".py"
    tree = source.tree(file)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    writing = {name for name, node in functions.items() if any(_writes_index(functions, name))}
    called = {name for node in tree.body for name in _called(node)}
    ready = [functions[name] for name in sorted(writing - called) if _takes_folder(functions[name])]
    if len(ready) == 1:
        taken = {argument.arg for argument in ready[0].args.args[1:]}
        settings = section.values.get("additional_config") or {}
        arguments = {name: value for name, value in settings.items() if name in taken}
        place = f"{file}:{ready[0].lineno}"
        section.put("prepare", {"function": ready[0].name, "arguments": arguments}, place)
    installs = {
        found: node.lineno
        for node in walk_tree(tree)
        if isinstance(node, ast.Raise)
        and isinstance(node.exc, ast.Call)
        and ast.unparse(node.exc.func) == "ImportError"
        for text in walk_tree(node.exc)
        if isinstance(text, ast.Constant) and isinstance(text.value, str)
        for found in _INSTALL.findall(text.value)
    }
    if installs:
        section.put("installs", sorted(installs), f"{file}:{min(installs.values())}")


def _called(node: ast.AST) -> Iterator[str]:
    for inner in walk_tree(node):
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name):
            yield inner.func.id


def _writes_index(
    functions: dict[str, ast.FunctionDef], name: str, seen: frozenset[str] = frozenset()
) -> Iterator[bool]:
    """Yield True if a function, or a function of the module that it calls, writes a file of that name."""
    node = functions[name]
    texts = {inner.value for inner in walk_tree(node) if isinstance(inner, ast.Constant)}
    methods = {inner.func.attr for inner in walk_tree(node) if isinstance(inner, ast.Call)
               if isinstance(inner.func, ast.Attribute)}  # fmt: skip
    if INDEX in texts and methods & _WRITES:
        yield True
    for other in set(_called(node)) & functions.keys() - seen - {name}:
        yield from _writes_index(functions, other, seen | {name})


def _takes_folder(node: ast.FunctionDef) -> bool:
    """Whether the checkpoint is a function's only required argument."""
    arguments = node.args
    required = len(arguments.args) - len(arguments.defaults)
    only = any(default is None for default in arguments.kw_defaults)
    return required == 1 and not only and not arguments.posonlyargs


VISUAL = ("image", "video")
_PLAIN = re.compile(r"\w+(\.\w+)*", re.ASCII)
# What the agent loop of verl-omni sends with a prompt: chat messages, and the images and videos in them.
_SENT = ("image", "video")
# Suffixes of a text encoder's outputs.
_ENCODED = ("embeds", "hidden_states", "mask")


def media(section: Section, facts: Established) -> None:
    """``ocr``: whether prompts alone suffice and an OCR reward can score the result.

    ``required``: media without which a request is refused; ``sends``: media that the package's own agent loop adds to
    it; ``blocks``: tables of values that it adds, each with the names of which one must be present; ``lacks``: inputs
    that a person's own agent loop must add.
    """
    kind = section.fact("kind", "detail.media.kind")
    prompts, origin = section.known("answers.prompt.kind")
    inputs = section.fact("inputs", "detail.media.inputs") or []
    section.known_fact("prepared", "detail.media.prepared")
    demanded, place = section.known("detail.media.required")
    declared = section.sources.preset.value(section.name, "required")
    if declared is not None:  # what a request is refused without, where text does not show it
        demanded, place = declared, f"preset {section.sources.preset.name}"
    # Inputs computed by another stage are not part of the data set.
    held = ("multi_modal_data",) if inputs else ()  # the table that these stand in
    required = [name for name in demanded or [] if name not in held and not name.endswith(_ENCODED)]
    if len(inputs) == 1 and not required and not set(held).isdisjoint(demanded or []):
        required = list(inputs)  # the table is asked for, and nothing else stands in it
    known = _carried(section)
    beside = kind != "action" and any(name not in (*known, *_SENT) for name in required)
    found, asked_at = section.known("detail.media.blocks") if beside else (None, "")
    blocks = [entry for entry in found or [] if _is_block(entry)]
    valued = {" or ".join(entry["names"]) for entry in blocks}
    lacks = [name for name in inputs if name not in (*known, *_SENT)]
    lacks += [name for name in required if name not in (*known, *lacks, *valued)]
    keys = [key for key in facts.value("answers.prompt.extra_args") or [] if _PLAIN.fullmatch(key)]
    lacks += [key for key in keys if any(other.startswith(f"{key}.") for other in keys)]
    if kind == "action" and not lacks:
        lacks = ["observations of the robot"]
    needed = "audio" in inputs or bool(blocks) or bool(set(required) & set(known))
    if section.sources.report.task is not None:
        section.put("required", ["image"], "flag --task")
        section.put("sends", ["image"], "flag --task")
    else:
        section.put("required", [name for name in required if name in known], place)
        section.put("sends", [name for name in inputs if name in known] if needed else [], origin)
    section.put("lacks", lacks, origin)
    if blocks:
        section.put("blocks", blocks, asked_at)
    structured = section.fact("structured", "detail.prompt.structured") is True
    told = bool(prompts) or not facts.value("answers.prompt.prompt_keys")
    alone = not lacks and not section.values["sends"] and not blocks and not structured and _behind(section) is None
    section.put("ocr", kind in VISUAL and alone and told, origin)


def _is_block(entry: dict[str, Any]) -> bool:
    """Whether the names of a table of values are valid identifiers for a package."""
    return all(re.fullmatch(r"[A-Za-z_]\w*", str(name), re.ASCII) for name in (entry["key"], *entry["names"]))


def _carried(section: Section) -> tuple[str, ...]:
    """Return the media that the release's rollout server accepts with a request as files."""
    return ("image", "audio") if section.sources.profile.request_audio else ("image",)


def _behind(section: Section) -> dict[str, Any] | None:
    """Return the topology in which the pipeline follows other stages; None if it can run alone."""
    topologies, _ = section.known("detail.engine.topologies")
    found = [entry for entry in topologies or [] if _harmless(entry)]
    return found[0] if found and all(entry["before"] for entry in found) else None


def deploy(section: Section, facts: Established, source: UpstreamSource) -> None:
    """``pipeline`` of one stage; else ``needed`` false and the ``option`` that names the class; else ``stages``.

    After other stages that feed image generation, ``pipeline`` is a topology in the package: stage ``position`` of
    ``behind`` alone, with inputs that the preceding ``stages`` computed once; ``grid`` is the number of tokens the
    preceding stage generates per image, set where vllm-omni's default would stop too early. ``additional_config``: the
    model's own settings that the engine must be started with.
    """
    if section.sources.preset.value(section.name, "additional_config") is not None:
        section.preset("additional_config")
    topologies, origin = section.known("detail.engine.topologies")
    topologies = [entry for entry in topologies or [] if _harmless(entry)]
    alone = [entry for entry in topologies or [] if not entry["before"]]
    behind = _behind(section)
    if alone:
        section.put("pipeline", alone[0]["name"], origin)
        settings, place = section.known("detail.engine.deploy_settings")
        for key, value in (settings or {}).items():
            if value:
                section.put(key, value, place)
    elif behind is not None:
        section.put("behind", behind["name"], origin)
        section.put("stages", behind["before"], origin)
        section.put("file", behind["file"], origin)
        registers, place = section.known("detail.engine.registers")
        if registers and facts.value("detail.media.kind") in VISUAL:
            section.put("position", behind["stage"], origin)
            section.put("pipeline", section.before["names"]["package"], place)
            prepares, place = section.known("detail.pre_process")
            if prepares:
                section.put("prepares", prepares, place)
            if section.sources.preset.value(section.name, "grid") is not None:
                section.preset("grid")
    elif section.says("detail.engine.class_by_config", True):
        section.put("needed", False, section.known("detail.engine.class_by_config")[1])
    else:
        option = section.fact("option", "detail.engine.class_option")
        if option is not None:
            section.put("needed", False, section.provenance["deploy.option"])
    put_rollout_setup(section, source)


def _harmless(topology: dict[str, Any]) -> bool:
    """Whether the names of a topology are safe in a script."""
    texts = [topology["name"], topology["file"].removesuffix(".yaml"), *topology["before"]]
    return all(re.fullmatch(r"[\w.-]+", text, re.ASCII) for text in texts)


def recipe(section: Section, facts: Established, weights: int | None = None, size: Sequence[int] | None = None) -> None:
    """The published recipe's values; sizes and steps are the pipeline's own, where they are known.

    ``weights`` are the bytes of the released ones, ``size`` the height and width that they make by default.
    """
    released = "layout of the released checkpoint"
    recipes.fill_recipe(section)
    recipes.fit(section, weights, released)
    sizes, origin = section.known("detail.request.sizes")
    sizes = sizes or {}
    visual = facts.value("detail.media.kind") in VISUAL
    for name, pixels in zip(("height", "width"), size or (None, None), strict=True):
        own = sizes.get(name)
        section.put(name, own or pixels, released if own is None and pixels is not None else origin)
    steps = section.put("num_inference_steps", sizes.get("num_inference_steps"), origin)
    del section.values["validation_steps"]  # validation uses the same number
    framed = facts.value("detail.media.kind") == "video"
    if framed:
        frames = sizes.get("num_frames")
        # The request's default is a single frame, which is not a video.
        section.put("num_frames", frames if frames != 1 else None, origin)
    section.put("sized", visual or bool({"height", "width"} & set(sizes)), origin)
    section.put("framed", framed, origin)
    size, (low, high) = section.values["sde_window_size"], section.values["sde_window_range"]
    if steps is not None and steps < 2 * high:
        section.put("sde_window_range", [low, max(steps // 2, size)], "the first half of the steps")


def _routers(linears: tuple[tuple[str, ...], ...]) -> list[tuple[str, ...]]:
    """Return the router layers, linear layers beside a list of experts: an adapter there would change the routing."""
    beside = {path[:at] for path in linears for at, part in enumerate(path[:-2]) if "expert" in part}
    return [path for path in linears if path[:-1] in beside]


def _all_routers(target: str, linears: tuple[tuple[str, ...], ...], routers: list[tuple[str, ...]]) -> bool:
    end = tuple(target.split("."))
    named = [path for path in linears if path[-len(end) :] == end]
    return bool(named) and all(path in routers for path in named)


def lora(section: Section, port: Port | None, reached: bool) -> None:
    """Put the linear layers that LoRA targets, and the lists of layers; without lists, parameters are not gathered
    layer by layer.

    ``reached`` says whether the rollout adapter knows where the engine keeps the denoiser.
    """
    layout = find_layout(port.source, port.entry, port.layer_classes) if port is not None else None
    origin = "the ported module"
    routers = _routers(layout.linears) if layout is not None else []
    targets = [name for name in layout.targets if not _all_routers(name, layout.linears, routers)] if layout else []
    section.put("targets", targets, origin)
    left = [name for name in layout.targets if name not in targets] if layout else []
    if left:
        section.put("routers", left, origin)
    section.put("unnamed", [".".join(path) for path in layout.unnamed] if layout else [], origin)
    section.put("unread", list(layout.unread) if layout else [], origin)
    # Layers from another library may contain linear layers that are not listed here.
    known = (*layout.linears, *layout.outside) if layout is not None and not layout.unread else ()
    section.put("linears", [".".join(path) for path in known], origin)
    if layout is not None and layout.uncalled:
        section.put("uncalled", [".".join(path) for path in layout.uncalled], origin)
    # Layers without linear layers in their own source come from another library; their LoRA targets are unknown.
    lists = layout.lists if layout and layout.targets else ()
    section.put("layer_prefixes", [f"{name}." for name in lists], origin)
    counts = layer_counts(port.source, port.entry) if port is not None else ()
    section.put("layer_counts", list(counts), origin)
    section.preset("rank", 64)
    section.preset("alpha", 128)
    section.put("trainable", [], origin)
    target, profile = section.before["target"], f"contract profile {section.sources.profile.name}"
    if target["lora_hook"]:
        section.put("sync", "fold" if reached else "missing", profile)
    else:
        way = "merge" if target["lora_merge"] else "none"
        section.put("sync", way, f"{profile}, which has no hook for LoRA updates")
    put_merge(section)
    section.put("placeholder", "spare", "default of omni-scaffold")
