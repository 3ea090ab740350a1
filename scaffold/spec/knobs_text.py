"""``scaffold.toml`` as the tool writes it: every knob with what it does, its unit, and what the pipeline has itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scaffold.spec.knobs import KNOBS, ROWS, is_knob
from scaffold.spec.lock import TWO_FILES
from scaffold.spec.toml_text import WIDTH, dumps

if TYPE_CHECKING:
    from scaffold.spec.model import IntegrationSpec

HEAD = (
    "# What you may change; `omni-scaffold update PACKAGE --spec` renders it. A comment says what a value does, its",
    "# unit, and after `upstream` what the pipeline itself has. Facts stand in scaffold.lock.toml; one that is written",
    "# in here, under its section and key, goes first.",
)
# What a setting of guidance does, by the part that it plays.
ROLES = {
    "scale": "weight of the prompt, 1 for none",
    "text_scale": "weight of the prompt, 1 for none",
    "image_scale": "weight of the image, 1 for none",
    "interval": "noise levels between which guidance acts",
    "renorm_type": "over what the length of the velocity is kept",
    "renorm_min": "the least that it is shortened to",
}


def knobs_text(spec: IntegrationSpec, own: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the text.

    Args:
        spec: whose knobs they are.
        own: sections of values that do not stand in the lock.
    """
    said = comments(spec)
    parts = ["\n".join((*HEAD, f"schema = {TWO_FILES}")) + "\n"]
    for section in dict.fromkeys([name.partition(".")[0] for name in KNOBS] + list(own)):
        values, plain, tables = own.get(section, {}), "", []
        knobs = [name for name in KNOBS if name.startswith(f"{section}.") and is_knob(name, ported=spec.ported)]
        there = [name for name in knobs if name.partition(".")[2] in spec.sections.get(section, {})]
        for name in [*there, *(f"{section}.{key}" for key in values if f"{section}.{key}" not in there)]:
            key = name.partition(".")[2]
            if key not in values:
                plain += f"# {key} =  # {KNOBS[name].says}; without a value {KNOBS[name].unset}\n"
            elif name in ROWS and values[key]:
                tables.append(_rows(name, values[key], said))
            else:
                heading, _, text = dumps({section: {key: values[key]}}).partition("\n")
                if heading == f"[{section}]":
                    plain += _with(text, said.get(name, ""))
                else:
                    tables.append(_with(f"{heading}\n{text}", said.get(name, "")))
        if plain or not tables:
            parts += [f"[{section}]\n{plain}"] if plain or section in own else []
        parts += tables
    return "\n".join(parts)


def comments(spec: IntegrationSpec) -> dict[str, str]:
    """Return ``section.key``, or ``section.key.row``, to the comment beside it."""
    found: dict[str, str] = {}
    for name in KNOBS:
        value = spec.value(name)
        if name in ROWS and isinstance(value, Mapping):
            parts = {spec.value(f"{name.partition('.')[0]}.{role}"): says for role, says in ROLES.items()}
            found |= {f"{name}.{row}": _said(spec, f"{name}.{row}", parts.get(row)) for row in value}
        elif value is not None:
            found[name] = _said(spec, name, KNOBS[name].says)
    return found


def _rows(name: str, values: Mapping[str, Any], said: Mapping[str, str]) -> str:
    rows = (
        _with(dumps({"x": {key: value}}).partition("\n")[2], said[f"{name}.{key}"]) for key, value in values.items()
    )
    return f"[{name}]  # {KNOBS[name].says}\n{''.join(rows)}"


def _with(text: str, comment: str) -> str:
    """Put a comment behind a value of one line where both fit, else before it."""
    if not comment:
        return text
    one = text.count("\n") == 1 and not text.startswith("[")
    return f"{text[:-1]}  # {comment}\n" if one and len(text) + len(comment) + 4 <= WIDTH else f"# {comment}\n{text}"


def _said(spec: IntegrationSpec, name: str, says: str | None) -> str:
    """What a value does; where upstream has one that is known, which. The value itself has no part in it."""
    own = (spec.value("upstream.own") or {}).get(name)
    return "; ".join(filter(None, (says, f"upstream {_shown(own)}" if own is not None else None)))


def _shown(value: Any) -> str:
    return dumps({"x": value}).removeprefix("x = ").strip()
