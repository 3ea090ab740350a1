"""Reads from a checkout's syntax trees what its rollout carries from a request to the engine and back.

A limit is found, ruled out, or neither. One that is neither counts as a limit: unseen support is not support.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

ROLLOUT = "verl_omni/workers/rollout/vllm_rollout"
SERVER = f"{ROLLOUT}/vllm_omni_async_server.py"
STRATEGY = f"{ROLLOUT}/vllm_omni_diffusion_strategy.py"
STRATEGY_BASE = f"{ROLLOUT}/vllm_omni_strategy_base.py"
REQUEST = "verl_omni/pipelines/rollout_request.py"
AGENT_LOOP = "verl_omni/agent_loop/single_turn_agent_loop.py"
IDS = ("prompt_ids", "prompt_token_ids")
# Keys of a request for the prompt, the negative prompt and media, and where each is sent.
_TEXTS = frozenset(
    {"prompt_ids", "prompt_mask", "negative_prompt_ids", "extra_prompt_ids", "negative_extra_prompt_ids"}
)
_PROMPT = _TEXTS | {
    "prompt_token_ids",
    "negative_prompt_mask",
    "multi_modal_data",
    "mm_processor_kwargs",
    "extra_args",
    "modalities",
}
_SENT = _TEXTS | {
    "request_id",
    "sampling_params",
    "image_data",
    "video_data",
    "audio_data",
    "mm_processor_kwargs",
    "routing_key",
    "priority",
}
_REQUEST_CLASS = "OmniRolloutRequest"
_REQUEST_FIELDS = frozenset({"prompt", "media"})
_BUILDER = "to_diffusion_prompt"
_NAMED_MEDIA = "media_artifacts"

Trees = Callable[[str], ast.Module | None]


@dataclass(frozen=True)
class RequestLimits:
    """The answers.

    Attributes:
        request_ids: keys under which a request of a diffusion stage holds its token ids; empty where none is found.
        named_media: whether a rollout's media are taken by declared names alone, so that bare images are refused.
        limits: as in `ContractProfile`, each with ``file:line``.
        unsettled: limits that were neither found nor ruled out, each with the file that was searched.
    """

    request_ids: tuple[str, ...]
    named_media: bool
    limits: Mapping[str, str]
    unsettled: Mapping[str, str]


def request_limits(trees: Trees) -> RequestLimits:
    """Read a checkout; ``trees`` gives the syntax tree of a file, None where there is none."""
    split = trees(STRATEGY) is not None
    engine = STRATEGY if split else SERVER
    prompts = [found for path in (engine, REQUEST) for found in _prompts(path, trees(path))]
    named = any(
        isinstance(node, ast.Constant) and node.value == _NAMED_MEDIA
        for path in (engine, STRATEGY_BASE)
        for node in _nodes(trees(path))
    )
    answers = {
        "token_prompts": (engine, _token_prompts(prompts)),
        "images_only": (engine, False if named else _images_only(engine, trees(engine))),
        "prompt_only": (AGENT_LOOP, _prompt_only(trees(AGENT_LOOP), trees(REQUEST))),
    }
    built = {key for _, keys in prompts for key in keys if key in IDS}
    # A builder's own key is for the diffusion stage; the strategy renames it for a stage before.
    if any(place.startswith(REQUEST) for place, _ in prompts):
        built = {key for place, keys in prompts if place.startswith(REQUEST) for key in keys if key in IDS}
    return RequestLimits(
        tuple(key for key in IDS if key in built),
        named,
        {name: found for name, (_, found) in answers.items() if isinstance(found, str)},
        {name: path for name, (path, found) in answers.items() if found is None},
    )


def _nodes(tree: ast.AST | None) -> Iterator[ast.AST]:
    return iter(()) if tree is None else ast.walk(tree)


def _prompts(path: str, tree: ast.Module | None) -> Iterator[tuple[str, frozenset[str | None]]]:
    """Yield where a request for a diffusion stage is built, and its keys, with None for one that is not literal.

    Such a request is a dictionary named ``custom_prompt``, or one in the method that converts a request to a prompt.
    """
    for function in _nodes(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for node in _nodes(function):
            if not isinstance(node, ast.Assign | ast.AnnAssign) or not isinstance(node.value, ast.Dict):
                continue
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            keys = {_text(key) for key in node.value.keys}
            if not isinstance(target, ast.Name) or not keys & set(IDS):
                continue
            if target.id != "custom_prompt" and function.name != _BUILDER:
                continue
            later = (
                _text(item.slice)
                for item in _nodes(function)
                if isinstance(item, ast.Subscript)
                and isinstance(item.ctx, ast.Store)
                and isinstance(item.value, ast.Name)
                and item.value.id == target.id
            )
            yield f"{path}:{node.lineno}", frozenset({*keys, *later})


def _text(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _token_prompts(prompts: list[tuple[str, frozenset[str | None]]]) -> str | bool | None:
    """Return the place of a request with only the prompt; False if one has more, None if unknown."""
    if not prompts or any(None in keys for _, keys in prompts):
        return None
    return False if any(keys - _PROMPT for _, keys in prompts) else prompts[-1][0]


def _images_only(path: str, tree: ast.Module | None) -> str | bool | None:
    """Return where a result without images is aborted or raises; None if no such place is found."""
    for node in _nodes(tree):
        if isinstance(node, ast.If) and "not final_res.images" in ast.unparse(node.test):
            return f"{path}:{node.lineno}"
    first = (
        node.lineno
        for node in _nodes(tree)
        if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith(".images")
    )
    place = min(first, default=None)
    return None if place is None else f"{path}:{place}"


def _prompt_only(loop: ast.Module | None, request: ast.Module | None) -> str | bool | None:
    """Return the place of the agent loop's call that sends only the prompt and its media; False if it sends more."""
    for node in _nodes(loop):
        if not (isinstance(node, ast.Call) and ast.unparse(node.func) == "self.server_manager.generate"):
            continue
        sent = {keyword.arg for keyword in node.keywords}
        if sent - _SENT == {"request"}:
            fields = _fields(request)
            if fields is None:
                return None
            sent = (sent - {"request"}) if fields <= _REQUEST_FIELDS else {*sent, *fields}
        if None in sent or node.args:
            return None
        return False if sent - _SENT else f"{AGENT_LOOP}:{node.lineno}"
    return None


def _fields(request: ast.Module | None) -> set[str] | None:
    for node in _nodes(request):
        if isinstance(node, ast.ClassDef) and node.name == _REQUEST_CLASS:
            annotated = (item.target for item in node.body if isinstance(item, ast.AnnAssign))
            return {target.id for target in annotated if isinstance(target, ast.Name)}
    return None
