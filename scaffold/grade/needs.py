"""What the ported code needs from outside: prompts of other stages, media, configuration classes."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from scaffold.errors import ScaffoldError
from scaffold.grade.established import Established
from scaffold.grade.missing import Missing
from scaffold.source.syntax import is_own, lineage, walk_tree

if TYPE_CHECKING:
    from scaffold.upstream import UpstreamSource

ROLLOUT = "vllm_omni_rollout_adapter.py"
# Kinds of results that verl-omni's rollout server does not accept.
_UNSEEN = {"audio": "sound", "action": "actions of a robot"}
_REGISTERS = frozenset({"AutoConfig", "AutoTokenizer", "AutoProcessor"})


def find_needs(
    facts: Established, model: str, launch: Mapping[str, Mapping[str, Any]], source: UpstreamSource
) -> list[Missing]:
    """Return what a person must provide besides the port, in the order in which a request needs it.

    Args:
        facts: what is established.
        model: MODEL, which names the package's files.
        launch: the sections ``media`` and ``deploy``.
        source: the version of vllm-omni.
    """
    return [
        *_parts(facts, model, source),
        *_configuration(facts, model, source),
        *_stages(facts, launch["deploy"], launch["media"].get("kind") in _UNSEEN),
        *_request(facts, launch["media"]),
        *_output(facts, launch["media"]),
    ]


def _parts(facts: Established, model: str, source: UpstreamSource) -> Iterator[Missing]:
    """Modules that the pipeline builds and passes to the denoiser: without a builder they are not in the port."""
    port = facts.port
    if port is None or port.builder:
        return
    for name in _handed(port.source, port.entry):
        place, made = _construction(source, facts.report.upstream.module, port.entry, name)
        what = (
            f"{name} of {port.entry}, {made or 'a module'} that the pipeline makes and hands to it, which is not ported"
        )
        yield Missing("part", what, place or facts.place("detail.denoiser.location"), f"{model}_denoiser.py")


def _handed(text: str, entry: str) -> list[str]:
    """Return constructor parameters that are stored as attributes and called by other methods."""
    classes = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}
    methods = [item for node in lineage(classes, entry) for item in node.body if isinstance(item, ast.FunctionDef)]
    init = next((method for method in methods if method.name == "__init__"), None)
    if init is None:
        return []
    parameters = {argument.arg for argument in [*init.args.args, *init.args.kwonlyargs]}
    kept = [
        node.targets[0].attr
        for node in walk_tree(init)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in parameters
    ]
    called = {
        chain
        for method in methods
        if method is not init
        for node in walk_tree(method)
        if isinstance(node, ast.Call) and (chain := _attribute_of_self(node.func)) is not None
    }
    return [name for name in kept if name in called]


def _attribute_of_self(node: ast.expr) -> str | None:
    """Return ``a`` of ``self.a`` or ``self.a.b``."""
    while isinstance(node, ast.Attribute):
        if is_own(node):
            return node.attr
        node = node.value
    return None


def _construction(source: UpstreamSource, module: str, entry: str, parameter: str) -> tuple[str | None, str | None]:
    """Return where the pipeline builds the module that it passes on, and its class."""
    file = module.replace(".", "/") + ".py"
    try:
        tree = source.tree(file)
    except ScaffoldError:
        return None, None
    made = [node for node in walk_tree(tree) if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)]
    for call in walk_tree(tree):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == entry):
            continue
        given = {ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg == parameter}
        for node in made:
            if given & {ast.unparse(target) for target in node.targets}:
                return f"{file}:{node.lineno}", ast.unparse(node.value).partition("(")[0]
        return f"{file}:{call.lineno}", None
    return None, None


def _configuration(facts: Established, model: str, source: UpstreamSource) -> Iterator[Missing]:
    """Classes of the checkpoint's configuration that transformers knows only once vllm-omni's module is imported.

    Code that builds the denoiser without looking up a transformers class by name does not need them.
    """
    if facts.port is not None and facts.port.builder and not _asks_by_name(facts.port.text):
        return
    pipeline = facts.report.upstream.module.replace(".", "/") + ".py"
    derived = list(facts.port.derived_from) if facts.port is not None else []
    for file in dict.fromkeys([*derived, *_imported(source, pipeline, pipeline.rpartition("/")[0])]):
        line = _registration(source, file)
        if line is not None:
            what = "configuration classes of the checkpoint, which only importing vllm-omni makes known to transformers"
            yield Missing("configuration", what, f"{file}:{line}", f"{model}_model.py")
            return


def _asks_by_name(text: str) -> bool:
    """Whether ported code looks up a transformers class by its name or by a model type."""
    return any(
        isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in _REGISTERS
        for node in walk_tree(ast.parse(text))
    )


def _imported(source: UpstreamSource, file: str, folder: str) -> list[str]:
    """Return the vllm-omni modules that a file imports, directly or through modules of its own folder."""
    found: list[str] = []
    todo = [file]
    while todo:
        try:
            tree = source.tree(todo.pop(0))
        except ScaffoldError:
            continue
        for node in walk_tree(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vllm_omni."):
                name = f"{node.module}".replace(".", "/") + ".py"
                if name not in found and source.exists(name):
                    found.append(name)
                    todo += [name] if name.startswith(f"{folder}/") else []
    return found


def _registration(source: UpstreamSource, file: str) -> int | None:
    """Return the first line on which importing a module registers a class with transformers, or None."""
    try:
        body = source.tree(file).body
    except ScaffoldError:
        return None
    for statement in body:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "register":
            if isinstance(call.func.value, ast.Name) and call.func.value.id in _REGISTERS:
                return statement.lineno
    return None


def _stages(facts: Established, deploy: Mapping[str, Any], unseen: bool) -> Iterator[Missing]:
    before = deploy.get("stages")
    if before and not deploy.get("pipeline"):
        what = (
            f"the prompts, which stage {', '.join(before)} of topology {deploy['behind']} makes: VeRL-Omni's request"
            " holds token ids"
        )
        yield Missing("stages", what, facts.place("detail.engine.topologies"), ROLLOUT, "token_prompts", unseen)


def _request(facts: Established, media: Mapping[str, Any]) -> Iterator[Missing]:
    if media["lacks"]:
        lacks = ", ".join(media["lacks"])
        what = f"what requests bring beside the prompt ({lacks}): VeRL-Omni's agent loop does not send that"
        unseen = media.get("kind") in _UNSEEN
        yield Missing("request", what, _asked_at(facts, media["lacks"]), "agent_loop.py", "prompt_only", unseen)


def _asked_at(facts: Established, lacks: list[str]) -> str:
    """Return where the first of the missing things is used."""
    for key in ("detail.media.required", "detail.media.inputs", "answers.prompt.extra_args"):
        fact = facts.report.fact(key)
        for index, name in enumerate(fact.value or []):
            if name in lacks and len(fact.evidence) == len(fact.value):
                return f"{fact.evidence[index].file}:{fact.evidence[index].line}"
    return facts.place("answers.prompt.extra_args")


def _output(facts: Established, media: Mapping[str, Any]) -> Iterator[Missing]:
    kind = media.get("kind")
    if kind in _UNSEEN:
        what = f"results that are {_UNSEEN[kind]}: VeRL-Omni takes no result without images"
        yield Missing("output", what, facts.place("detail.media.kind"), ROLLOUT, "images_only", theirs=True)
