"""vllm-omni's code carried over into the user's tree: text in, text out."""

from typing import TYPE_CHECKING

from scaffold.limits.on_demand import on_demand
from scaffold.port.result import Assumption, Fused, Gap, Kept, Port

if TYPE_CHECKING:
    from scaffold.port.denoiser import port_denoiser

__all__ = ["Assumption", "Fused", "Gap", "Kept", "Port", "port_denoiser"]

__getattr__ = on_demand(__name__, {"denoiser": "port_denoiser"})
