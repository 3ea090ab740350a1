"""Rotary positions."""

import torch


def tables(places, pupil: int):
    speeds = 100.0 ** -(torch.arange(0, pupil, 2, device=places.device).float() / pupil)
    angles = (places.float()[..., None] * speeds).repeat_interleave(2, -1)[:, None]
    return angles.cos(), angles.sin()


def turned(x, cos, sin):
    pair = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    return (x.float() * cos + pair.float() * sin).to(x.dtype)
