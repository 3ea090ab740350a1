"""Values that a TensorDict carries beside tensors."""

from __future__ import annotations

from typing import Any

from tensordict.tensorclass import NonTensorData


def unwrap_non_tensor_data(data: Any) -> Any:
    """Return what a ``NonTensorData`` holds; anything else comes back as it is."""
    return data.data if isinstance(data, NonTensorData) else data
