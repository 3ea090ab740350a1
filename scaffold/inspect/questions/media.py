"""What the pipeline makes: an image, a video, sound, or a robot's actions; and what it takes beside text."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.errors import ScaffoldError
from scaffold.inspect.facts import UNKNOWN, Confidence, Evidence, Fact, fact
from scaffold.inspect.pre_process import pre_process
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import options
from scaffold.inspect.program.values import Obj, Seq
from scaffold.inspect.questions.request_settings import parameters
from scaffold.inspect.questions.topology import answers as topology_answers
from scaffold.inspect.questions.vae import answers as vae_answers
from scaffold.source.classes import ClassInfo
from scaffold.source.syntax import looked_up, walk_tree

ORDER = 17
KEYS = (
    "detail.media.kind",
    "detail.media.inputs",
    "detail.media.required",
    "detail.media.prepared",
    "detail.media.blocks",
)
_METADATA = "vllm_omni/diffusion/model_metadata.py"
_MEDIA = "multi_modal_data"
_INPUTS = ("image", "video", "audio")
_FIELD = "final_output_type"
_KINDS = {"image": "image", "video": "video", "audio": "audio", "action": "action", "actions": "action"}
# Autoencoders of diffusers that know one picture at a time.
_OF_IMAGES = frozenset({"AutoencoderKL", "AutoencoderKLFlux2", "AutoencoderDC"})


def answers(program: Program) -> dict[str, Fact]:
    """``kind``: the first that says so of the engine's table, the class, a topology, the result, what is decoded."""
    facts = {
        KEYS[1]: _inputs(program),
        KEYS[2]: _required(program),
        KEYS[3]: _prepared(program),
        KEYS[4]: _blocks(program),
    }
    kinds = (entry for found in _SOURCES for entry in found(program) if entry[0] in _KINDS)
    kind, place, sure = next(kinds, (None, None, False))
    if kind is not None:
        facts[KEYS[0]] = fact(_KINDS[kind], [place], "certain" if sure else "likely")
    return facts


def _inputs(program: Program) -> Fact:
    """``image``, ``audio`` where the class says that it takes them, else the media that are read of a request.

    Media that are read but not declared by the class may be read only to be refused.
    """
    taken: dict[str, Evidence | None] = {}
    sure: Confidence = "certain"
    for name in ("image", "audio"):
        found = program.cls.find_assign(f"support_{name}_input")
        if found is not None and isinstance(found[1], ast.Constant) and found[1].value is True:
            taken[name] = program.place(found[0], found[1])
            if not _says_itself(program, found[0]):
                sure = "likely"
    read = {**_asked(program), **_read(program)}
    if set(read) - set(taken):
        sure = "likely"
    if not taken and not read and not pre_process(program).followed:
        sure = "likely"
    taken = taken or {name: read[name] for name in _INPUTS if name in read}
    return fact(list(taken), list(taken.values()) or [program.place(program.cls)], sure)


def _required(program: Program) -> Fact:
    """What a request is refused without, beside its text; of names joined by `` or `` it has to bring one."""
    found: dict[str, Evidence | None] = {}
    for demands in (pre_process(program).demands, program.trace.demands):
        for group, at in demands.items():
            names = dict.fromkeys(_name(key) for _, key in group)
            media = [name for name in names if name in _INPUTS]
            found.setdefault(" or ".join(media or names), at)
    for name, at in _of_the_key(program):
        found.setdefault(name, at)
    return fact(list(found), list(found.values()) or [program.place(program.cls)], "likely")


def _of_the_key(program: Program) -> Iterator[tuple[str, Evidence | None]]:
    """Keys of a request without which that variant of a class refuses it for which a registry key stands.

    The text ties a key to a flag by choosing between names: ``KEY if flag else OTHER``; ``self.flag`` decides later.
    """
    key = program.execution.model_name
    tree = list(walk_tree(program.source.tree(program.target.file))) if key is not None else []
    names = {
        ast.unparse(node.targets[0]): node.value.value
        for node in tree
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
    }
    flags = {
        node.test.id
        for node in tree
        if isinstance(node, ast.IfExp) and isinstance(node.test, ast.Name) and names.get(ast.unparse(node.body)) == key
    }
    methods = program.cls.methods.values()
    read: dict[str, str] = {}
    for node in (node for method in methods for node in walk_tree(method) if isinstance(node, ast.Assign)):
        found = looked_up(node.value)
        if found is not None and isinstance(found[1], ast.Constant) and isinstance(found[1].value, str):
            read[ast.unparse(node.targets[0])] = found[1].value
    for outer in (node for method in methods for node in walk_tree(method) if isinstance(node, ast.If)):
        if ast.unparse(outer.test).removeprefix("self.") not in flags:
            continue
        for inner in (node for node in outer.body if isinstance(node, ast.If) and isinstance(node.body[0], ast.Raise)):
            for part in inner.test.values if isinstance(inner.test, ast.BoolOp) else [inner.test]:
                absent = ast.unparse(part).removesuffix(" is None")
                if absent in read and absent != ast.unparse(part):
                    yield read[absent], program.place(program.cls, inner.body[0])


def _blocks(program: Program) -> Fact:
    """Tables among the extra arguments that hold what a request is refused without, each with the names of that.

    What is asked for under ``block.name`` of a prompt, where a ``block`` of the extra arguments is read before, is a
    part of that block: prompts that hold ids have no place for it.
    """
    before = pre_process(program)
    blocks = {key: at for (root, key), at in before.reads.items() if root == "extra_args" and "." not in key}
    found: list[dict[str, object]] = []
    places: list[Evidence | None] = []
    for demands in (before.demands, program.trace.demands):
        for group, at in demands.items():
            named = [key.rpartition(".") for root, key in group if root in ("prompt", "extra_args")]
            for block in dict.fromkeys(owner for owner, _, _ in named if owner in blocks):
                entry: dict[str, object] = {"key": block, "names": [n for owner, _, n in named if owner == block]}
                if entry not in found:
                    found.append(entry)
                    places.append(at)
    return fact(found, places or [program.place(program.cls)], "likely")


def _prepared(program: Program) -> Fact:
    """What the function that makes a request ready puts into every prompt, whether it brings media or not."""
    before = pre_process(program)
    if not before.followed:
        return UNKNOWN
    keys = dict.fromkeys(key.partition(".")[0] for root, key in sorted(before.own) if root == "prompt")
    return fact([key for key in keys if key != _MEDIA], [program.place(program.cls)])


def _name(key: str) -> str:
    """The last part of a key, that of media in the singular."""
    name = key.rpartition(".")[2]
    return name.removesuffix("s") if name.removesuffix("s") in _INPUTS else name


def _says_itself(program: Program, owner: ClassInfo) -> bool:
    """Whether a class or its mixins, rather than a parent pipeline, declare what it takes."""
    above = [c for c in program.cls.mro[1:] if "forward" in c.methods]
    return not any(owner in c.mro for c in above)


def _read(program: Program) -> dict[str, Evidence | None]:
    """The kinds of media that are read of a request, by the pipeline or before it."""
    found: dict[str, Evidence | None] = {}
    for (root, key), at in {**program.trace.reads, **pre_process(program).reads}.items():
        name = key.rpartition(".")[2].removesuffix("s")
        of_media = root == "media" or (root == "prompt" and key.startswith(f"{_MEDIA}."))
        if name in _INPUTS and (of_media or (root == "extra_args" and "." in key)):
            found.setdefault(name, at)
    return found


def _asked(program: Program) -> dict[str, Evidence]:
    """Where the pipeline's module, which makes a request ready too, looks for media in what comes along."""
    file = program.cls.module.file
    found: dict[str, Evidence] = {}
    for node in walk_tree(program.source.tree(file)):
        table, key = looked_up(node) or (None, None)
        if isinstance(key, ast.Constant) and key.value in _INPUTS and table is not None and _MEDIA in ast.dump(table):
            found.setdefault(str(key.value), Evidence(file, key.lineno))
    return found


Found = Iterator[tuple[str, Evidence | None, bool]]


def _declared(program: Program) -> Found:
    """The entry of the engine's table of models, by registry key or class."""
    names = {*program.target.registry_keys, program.cls.name}
    for node in walk_tree(_metadata(program)):
        if not isinstance(node, ast.Dict):
            continue
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and key.value in names and isinstance(value, ast.Call):
                for keyword in value.keywords:
                    if keyword.arg == _FIELD and isinstance(keyword.value, ast.Constant):
                        yield str(keyword.value.value), Evidence(_METADATA, keyword.value.lineno), True


def _metadata(program: Program) -> ast.AST:
    try:
        return program.source.tree(_METADATA) if program.source.exists(_METADATA) else ast.Module([], [])
    except ScaffoldError:
        return ast.Module([], [])


def _sound(program: Program) -> Found:
    found = program.cls.find_assign("support_audio_output")
    if found is not None and isinstance(found[1], ast.Constant) and found[1].value is True:
        place = program.place(found[0], found[1])
        # Sound beside something else is that of a video.
        yield ("video", place, False) if _is_pair(program) else ("audio", place, True)


def _is_pair(program: Program) -> bool:
    """Whether the result holds two things."""
    for result in options(program.result):
        if not isinstance(result, Obj):
            continue
        program.execution.attributes.ensure_ready(result)
        held = result.attrs.get("output")
        for output in options(held):
            if isinstance(output, Seq) and output.exact and len(output.items) > 1:
                return True
    return False


def _of_topology(program: Program) -> Found:
    known = topology_answers(program).get("detail.engine.topologies")
    if known is not None:
        outputs = {topology["output"] for topology in known.value}
        if len(outputs) == 1:
            yield str(outputs.pop()), known.evidence[0], True


def _of_result(program: Program) -> Found:
    """``output={"actions": …}`` of the result that a method of the class returns."""
    for owner, nodes in program.nodes:
        for node in nodes:
            if not isinstance(node, ast.Call):
                continue
            for keyword in node.keywords:
                if keyword.arg == "output" and isinstance(keyword.value, ast.Dict) and _holds_actions(keyword.value):
                    yield "actions", program.place(owner, node), True


def _holds_actions(value: ast.Dict) -> bool:
    keys = (key for node in walk_tree(value) if isinstance(node, ast.Dict) for key in node.keys)
    return any(isinstance(key, ast.Constant) and key.value == "actions" for key in keys)


def _of_settings(program: Program) -> Found:
    """Infer the kind without the engine's table: from an image autoencoder, or a number of frames in the request."""
    vae = vae_answers(program).get("answers.vae.class")
    if vae is not None and vae.value in _OF_IMAGES:
        yield "image", vae.evidence[-1], False
    for given in parameters(program):
        if given.root == "sampling_params" and given.key == "num_frames":
            yield "video", given.at, False


def _by_default(program: Program) -> Found:
    """Return the engine's default for a model missing from its table; older tables have no such column."""
    for node in walk_tree(_metadata(program)):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == _FIELD:
            yield "image", Evidence(_METADATA, node.lineno), False


_SOURCES = (_declared, _sound, _of_topology, _of_result, _of_settings, _by_default)
