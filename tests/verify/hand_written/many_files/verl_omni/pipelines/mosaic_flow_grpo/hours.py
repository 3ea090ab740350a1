"""Noise levels of the schedule, and what the network is told of one."""

import math

import torch


def levels(points: int):
    even = torch.linspace(1, 0, max(points, 2), dtype=torch.float32)
    return 3.0 * even / (1 + 2.0 * even)


def set_hours(scheduler, points: int, device):
    scheduler.set_shift(1.0)
    scheduler.set_timesteps(sigmas=levels(points)[:-1].tolist(), device=device)
    scheduler.timesteps = scheduler.sigmas[:-1].clone()
    scheduler.set_begin_index(0)


def told(level):
    waves = level.float()[:, None] * torch.exp(torch.arange(24, device=level.device) * (math.log(500.0) / 23))
    return torch.cat((waves.sin(), waves.cos()), -1)
