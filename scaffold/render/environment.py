"""The Jinja environment: packaged templates only, undefined names raise, nothing is escaped behind one's back."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaffold.errors import ScaffoldError

if TYPE_CHECKING:
    from jinja2 import Environment


def environment(templates: Path) -> Environment:
    """Return the environment for a folder of templates; its loader opens nothing outside that folder."""
    from jinja2 import FileSystemLoader, StrictUndefined

    from scaffold.render.filters import filters
    from scaffold.render.inert import KEEPING, InertEnvironment, keeping_inert, require_inert

    env = InertEnvironment(
        loader=FileSystemLoader(templates, followlinks=False),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        finalize=require_inert,
        auto_reload=False,
    )
    env.filters.update({name: keeping_inert(env.filters[name]) for name in KEEPING})
    env.filters.update(filters())
    return env


def render_template(env: Environment, templates: Path, name: str, context: dict[str, Any]) -> str:
    """Render one template.

    Raises:
        ScaffoldError: whatever went wrong inside, with the template and the line where it did.
    """
    from jinja2 import TemplateError, TemplateNotFound, TemplateSyntaxError

    try:
        return env.get_template(name).render(context)
    except TemplateSyntaxError as error:
        raise ScaffoldError(f"template {error.name or name}, line {error.lineno}: {error.message}") from error
    except TemplateNotFound as error:
        raise ScaffoldError(f"{_place(error, templates, name)}: there is no template {error.name}") from error
    except (TemplateError, ScaffoldError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ScaffoldError(f"{_place(error, templates, name)}: {_message(error)}") from error
    except RecursionError as error:
        raise ScaffoldError(f"template {name}: blocks or values are nested without end") from error


def _place(error: BaseException, templates: Path, name: str) -> str:
    """Name the innermost template line on the way to the error; Jinja rewrites tracebacks to template lines."""
    place = f"template {name}"
    root = str(templates)
    traceback = error.__traceback__
    while traceback is not None:
        filename = traceback.tb_frame.f_code.co_filename
        if filename.startswith(root):
            place = f"template {Path(filename).relative_to(root).as_posix()}, line {traceback.tb_lineno}"
        traceback = traceback.tb_next
    return place


def _message(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return re.sub(r"\s+", " ", text)
