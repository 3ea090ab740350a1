"""LoRA in training, without tensors that the backward pass has no use for."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from peft.tuners import lora
from torch import Tensor, nn


class LoraLinear(lora.Linear):
    """PEFT's LoRA layer with the base product accumulated into the update.

    PEFT forms the update, its scaling and the sum as three more tensors of the output's size, which is a tenth of a
    training step here. Anything but one plain, unwrapped adapter in the input's dtype is left to PEFT.
    """

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Map ``(…, in_features)`` to ``(…, out_features)``."""
        name = str(self.active_adapters[0]) if len(self.active_adapters) == 1 else ""
        plain = name in self.lora_A and not (args or kwargs or self.disable_adapters or self.merged)
        plain = plain and name not in getattr(self, "lora_variant", {}) and not torch.is_autocast_enabled(x.device.type)
        # A sharding wrapper around one of the matrices shows its weight, and its dtype, only during its own forward.
        if not plain or {type(self.lora_A[name]), type(self.lora_B[name])} != {nn.Linear}:
            return super().forward(x, *args, **kwargs)
        base, down, up = self.base_layer, self.lora_A[name], self.lora_B[name]
        if type(base) is not nn.Linear or {base.weight.dtype, down.weight.dtype} != {x.dtype} or up.bias is not None:
            return super().forward(x)
        rows = x.flatten(0, -2)
        out = F.linear(down(self.lora_dropout[name](rows)) * self.scaling[name], up.weight, base.bias)
        # The large product comes last: a layer that is recomputed ends before it, since backward has no use for it.
        return out.addmm_(rows, base.weight.t()).unflatten(0, x.shape[:-1])
