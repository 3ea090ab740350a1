"""vllm-omni's code carried over into the user's tree: text in, text out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scaffold.port.result import Assumption, Fused, Gap, Kept, Port

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scaffold.port.stacked import Row
    from scaffold.upstream import UpstreamSource

__all__ = ["Assumption", "Fused", "Gap", "Kept", "Port", "port_denoiser"]


def port_denoiser(
    source: UpstreamSource,
    module: str,
    name: str,
    *,
    stacked: Sequence[Row] = (),
    also: Sequence[str] = (),
    kept: Kept | None = None,
    method: str = "forward",
    settings: Mapping[str, Any] | None = None,
    constants: Mapping[str, object] | None = None,
) -> Port:
    """Return a denoiser and all that it needs as one module of plain torch; see `scaffold.port.denoiser`."""
    import gc

    from scaffold.port.denoiser import port_denoiser as port

    # Syntax trees are many small objects, which go as a whole.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return port(
            source,
            module,
            name,
            stacked=stacked,
            also=also,
            kept=kept,
            method=method,
            settings=settings,
            constants=constants,
        )
    finally:
        if collecting:
            gc.enable()
