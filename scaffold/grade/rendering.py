"""Rendering of a partial package: what its spec must be, and the text of the ported denoiser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scaffold.errors import ScaffoldError

if TYPE_CHECKING:
    from scaffold.port import Port
    from scaffold.spec import IntegrationSpec

_STRINGS = ("upstream.module", "upstream.class", "names.module_class", "names.architecture")
_ENTRY = ("key", "what", "at", "where", "message")


def validate_partial(spec: IntegrationSpec, source: str = "the spec") -> None:
    """Check the values that decide what is rendered.

    Raises:
        ScaffoldError: names the key and what it may be.
    """
    from scaffold.grade.established import FORMULAS
    from scaffold.spec.validate import DATE

    def require(key: str, fits: bool, wanted: str) -> None:
        if not fits:
            raise ScaffoldError(f"{source}: {key} is {spec.value(key)!r}", hint=f"it must be {wanted}")

    for key in _STRINGS:
        value = spec.value(key)
        require(key, isinstance(value, str) and all(part.isidentifier() for part in value.split(".")), "a name")
    missing = spec.value("grade.missing")
    entries = isinstance(missing, list) and all(
        isinstance(entry, dict) and set(entry) == set(_ENTRY) for entry in missing
    )
    require("grade.missing", entries, f"a list of tables with {', '.join(_ENTRY)}")
    require("prediction.sign", spec.value("prediction.sign") in (1, -1, None), "1, -1 or absent")
    established = spec.value("guidance.established")
    known = spec.value("guidance.branches") == 1 or spec.value("guidance.formula") in FORMULAS
    require(
        "guidance.established", isinstance(established, bool) and (known or not established), "false for this formula"
    )
    require("docs.last_updated", bool(DATE.fullmatch(str(spec.value("docs.last_updated")))), "a date MM/DD/YYYY")


def ported_text(spec: IntegrationSpec, port: Port | None) -> str | None:
    """Return the module of the ported denoiser; None where the spec has none.

    Raises:
        ScaffoldError: it has to be ported again, and the recorded version of vllm-omni cannot be had.
    """
    if not spec.value("port.entry"):
        return None
    if port is None:
        port = _ported_again(spec)
    return port.source


def _ported_again(spec: IntegrationSpec) -> Port:
    from scaffold.grade.decide import port_of
    from scaffold.inspect import inspect_pipeline
    from scaffold.upstream import locate

    version: Any = spec.value("upstream.version")
    if not isinstance(version, str) or version.startswith("from "):
        raise ScaffoldError(
            f"the denoiser was ported {version or 'from an unknown version'}, which is no version that can be fetched",
            hint="run `new` with --vllm-omni instead of --spec",
        )
    source = locate(version)
    report = inspect_pipeline(source, f"{spec.value('upstream.module')}:{spec.value('upstream.class')}")
    port, _ = port_of(source, report)
    if port is None:
        raise ScaffoldError(f"vllm-omni {version} has no denoiser that the spec names")
    return port
