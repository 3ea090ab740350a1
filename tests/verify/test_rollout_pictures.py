"""An autoencoder of the released size draws one picture of each shape."""

from __future__ import annotations

from typing import Any

import pytest
from installed import in_one_worker

torch = pytest.importorskip("torch")
pytestmark = in_one_worker

from scaffold.verify.rollout.engine_side.engine import draw_once  # noqa: E402


class Autoencoder(torch.nn.Module):
    """Keeps the shapes that it has decoded."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.full((), 2.0))
        self.decoded: list[tuple[int, ...]] = []

    def decode(self, latents: Any, return_dict: bool = True) -> Any:
        self.decoded.append(tuple(latents.shape))
        picture = latents * self.scale
        return {"sample": picture} if return_dict else (picture,)


def test_a_shape_is_decoded_once_and_whoever_changes_a_picture_has_his_own() -> None:
    autoencoder = Autoencoder()
    draw_once(autoencoder)
    first = autoencoder.decode(torch.ones(1, 4, 2, 2))
    assert torch.equal(first["sample"], torch.full((1, 4, 2, 2), 2.0))
    first["sample"].zero_()
    assert torch.equal(autoencoder.decode(torch.zeros(1, 4, 2, 2))["sample"], torch.full((1, 4, 2, 2), 2.0))
    assert autoencoder.decoded == [(1, 4, 2, 2)]
    assert isinstance(autoencoder.decode(torch.ones(1, 4, 2, 2), return_dict=False), tuple)
    assert autoencoder.decode(torch.ones(1, 4, 2, 4))["sample"].shape == (1, 4, 2, 4)
    assert autoencoder.decode(torch.ones(1, 4, 2, 2).half())["sample"].dtype == torch.float16
    assert autoencoder.decoded == [(1, 4, 2, 2), (1, 4, 2, 2), (1, 4, 2, 4), (1, 4, 2, 2)]
