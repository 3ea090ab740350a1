"""Rendering of a partial package: validation of its spec, and the text of the ported denoiser."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaffold.errors import ScaffoldError
from scaffold.grade import COMPLETE, PARTIAL, UNPROVEN
from scaffold.grade.decide import port_of
from scaffold.grade.diffusers_spec import FORM
from scaffold.grade.launch_values import RULES
from scaffold.grade.origin import origin_of
from scaffold.inspect import EDIT, inspect_pipeline
from scaffold.spec.ranges import require_ranges
from scaffold.spec.validate import is_date

if TYPE_CHECKING:
    from scaffold.port import Port
    from scaffold.spec import IntegrationSpec


_STRINGS = ("upstream.module", "upstream.class", "names.module_class", "names.architecture")
_ENTRY = ("key", "what", "at", "where", "message")
_NEED = ("key", "what", "at")


def validate_ported(spec: IntegrationSpec, source: str = "the spec") -> None:
    """Check the values that decide what is rendered.

    Raises:
        ScaffoldError: names the key and what it may be.
    """

    def require(key: str, fits: bool, wanted: str) -> None:
        if not fits:
            raise ScaffoldError(f"{source}: {key} is {spec.value(key)!r}", hint=f"it must be {wanted}")

    for key in _STRINGS:
        value = spec.value(key)
        require(key, isinstance(value, str) and all(part.isidentifier() for part in value.split(".")), "a name")
    grades = (COMPLETE, UNPROVEN, PARTIAL)
    require("grade.value", spec.value("grade.value") in grades, f"one of {', '.join(grades)}")
    missing = spec.value("grade.missing")
    entries = isinstance(missing, list) and all(
        isinstance(entry, dict) and set(entry) == set(_ENTRY) for entry in missing
    )
    require("grade.missing", entries, f"a list of tables with {', '.join(_ENTRY)}")
    needs = spec.value("grade.needs")
    entries = needs is None or (
        isinstance(needs, list) and all(isinstance(entry, dict) and set(entry) == set(_NEED) for entry in needs)
    )
    require("grade.needs", entries, f"a list of tables with {', '.join(_NEED)}, or absent")
    refuses = spec.value("grade.refuses")
    require("grade.refuses", refuses is None or isinstance(refuses, str), "a line, or absent")
    require("recording.sign", spec.value("recording.sign") in (1, -1, None), "1, -1 or absent")
    require("upstream.task", spec.value("upstream.task") in (None, EDIT), f"{EDIT!r} or absent")
    for entry in spec.value("guidance.others") or []:
        words = [entry.get("name"), *(entry.get("others") or [])] if isinstance(entry, dict) else [None]
        require("guidance.others", all(str(word).isidentifier() for word in words), "tables with name and others")
    attribute, builder = spec.value("loading.attribute"), spec.value("port.builder")
    require("loading.attribute", not attribute or str(attribute).isidentifier(), "a name or empty")
    require("port.builder", builder is None or str(builder).isidentifier(), "a name or absent")
    loads, own = spec.value("loading.established"), spec.value("port.own")
    held = bool(attribute) or own is True
    loaded = spec.value("port.form") == FORM
    known = loads in (False, None) or bool(held and (builder or loaded))
    require("loading.established", known, "false without a builder")
    for key in ("port.output", "port.first", "port.tokenizer"):
        value = spec.value(key)
        named = value is None or all(part.isidentifier() for part in str(value).split("."))
        require(key, named, "a name or absent")
    for key, fits, wanted in RULES:
        require(key, fits(spec.value(key)), wanted)
    require_ranges(spec, source)
    require("docs.last_updated", is_date(spec.value("docs.last_updated")), "a date MM/DD/YYYY")


def ported_text(spec: IntegrationSpec, port: Port | None) -> str | None:
    """Return the module that imports the denoiser; None if the spec has none.

    Raises:
        ScaffoldError: it has to be read again, and the recorded version of vllm-omni cannot be had.
    """
    if not spec.value("port.entry"):
        return None
    if port is None:
        port = ported_again(spec)
    return port.text


def ported_again(spec: IntegrationSpec) -> Port:
    """Return the denoiser of a package, read again from the recorded version.

    Raises:
        ScaffoldError: that version is not available, or has no such denoiser.
    """
    source = origin_of(spec)
    pipeline = f"{spec.value('upstream.module')}:{spec.value('upstream.class')}"
    report = inspect_pipeline(source, pipeline, task=spec.value("upstream.task"))
    port, _ = port_of(source, report, spec.value("deploy.additional_config"))
    if port is None:
        raise ScaffoldError(f"vllm-omni {source.label} has no denoiser that the spec names")
    return port
