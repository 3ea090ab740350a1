"""The Jinja environment: undefined names raise, nothing is escaped behind one's back."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jinja2 import (
    Environment,
    FunctionLoader,
    StrictUndefined,
    TemplateError,
    TemplateNotFound,
    TemplateSyntaxError,
    pass_context,
)
from jinja2.loaders import split_template_path

from scaffold.algorithms import algorithms, registered
from scaffold.errors import ScaffoldError
from scaffold.files.reading import read_text
from scaffold.render.compiled import Compiled
from scaffold.render.filters import filters
from scaffold.render.gpu_memory import memory_settings
from scaffold.render.inert import KEEPING, InertEnvironment, keeping_inert, require_inert


class Sources:
    """The folder that templates come from, and what errors call them."""

    def __init__(self, packaged: Path) -> None:
        self.packaged = packaged
        self._shown: dict[str, str] = {}

    def load(self, name: str) -> tuple[str, str, Callable[[], bool]]:
        """Return text, place and freshness of a template, as Jinja asks for them."""
        path = self.packaged.joinpath(*split_template_path(name))
        try:
            text = read_text(path, inside=self.packaged)
        except OSError:
            raise TemplateNotFound(name) from None
        self._shown[str(path)] = path.relative_to(self.packaged).as_posix()
        return text, str(path), lambda: True

    def shown(self, place: str | None) -> str | None:
        """Return what errors call the template of a place; None for what is none."""
        return self._shown.get(place or "")


_COMPILED = Compiled()


def environment(sources: Sources) -> Environment:
    """Return the environment for templates; its loader opens nothing outside their folders."""
    env = InertEnvironment(
        loader=FunctionLoader(sources.load),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        finalize=require_inert,
        auto_reload=False,
        bytecode_cache=_COMPILED,
    )
    env.filters.update({name: keeping_inert(env.filters[name]) for name in KEEPING})
    env.filters.update(filters())
    env.filters["memory_settings"] = memory_settings
    env.filters |= {"registered": registered, "algorithms": algorithms}
    env.globals["one_by_one"] = one_by_one
    return env


@pass_context
def one_by_one(context: Mapping[str, Any]) -> str:
    """Why the rollout adapter takes one request at a time; empty where it takes several.

    A composed one takes several; one that records does where samples of a call are known to get what they get alone.
    """
    recording, port = context.get("recording"), context.get("port")
    if context["upstream"].get("replaced"):
        return ""
    if not recording or not port or recording["kind"] is None or not context["inputs"].get("recorded"):
        return "its calls of the denoiser are not recorded"
    if recording["kind"] == "update" or port.get("own") or not context["loading"].get("attribute"):
        return "the loop, or the denoiser, is not the pipeline's own"
    if port.get("context"):
        return "its denoiser reads what the pipeline sets for the whole process at each request"
    if port.get("batches", "none") == "none":
        return "it has not been shown that a sample of a call gets what it gets alone"
    return str(port.get("alone") or "")


def render_template(env: Environment, sources: Sources, name: str, context: dict[str, Any]) -> str:
    """Render one template.

    Raises:
        ScaffoldError: whatever went wrong inside, with the template and the line where it did.
    """
    try:
        return env.get_template(name).render(context)
    except TemplateSyntaxError as error:
        named = error.name or name
        raise ScaffoldError(
            f"template {sources.shown(named) or named}, line {error.lineno}: {error.message}"
        ) from error
    except TemplateNotFound as error:
        raise ScaffoldError(f"{_place(error, sources, name)}: there is no template {error.name}") from error
    except (TemplateError, ScaffoldError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ScaffoldError(f"{_place(error, sources, name)}: {_message(error)}") from error
    except RecursionError as error:
        shown = sources.shown(name) or name
        raise ScaffoldError(f"template {shown}: blocks or values are nested without end") from error


def _place(error: BaseException, sources: Sources, name: str) -> str:
    """Name the innermost template line on the way to the error; Jinja rewrites tracebacks to template lines."""
    place = f"template {sources.shown(name) or name}"
    traceback = error.__traceback__
    while traceback is not None:
        shown = sources.shown(traceback.tb_frame.f_code.co_filename)
        if shown is not None:
            place = f"template {shown}, line {traceback.tb_lineno}"
        traceback = traceback.tb_next
    return place


def _message(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return re.sub(r"\s+", " ", text)
