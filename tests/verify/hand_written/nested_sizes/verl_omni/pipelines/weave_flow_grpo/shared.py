import torch

DEFAULTS = {"cfg_text_scale": 4.0, "cfg_interval": (0.0, 1.0), "cfg_renorm_type": "global", "cfg_renorm_min": 0.0}


def settings(given):
    return {k: v if given.get(k) is None else given[k] for k, v in DEFAULTS.items()}


def fill(scheduler, n, device="cpu"):
    t = torch.linspace(1, 0, max(n, 2), dtype=torch.float32)
    scheduler.set_shift(1.0)
    scheduler.set_timesteps(sigmas=(3.0 * t / (1 + 2.0 * t))[:-1].tolist(), device=device)
    scheduler.timesteps = scheduler.sigmas[:-1].clone()
    scheduler.set_begin_index(0)


def guide(v, u, t, chosen):
    low, high = chosen["cfg_interval"]
    g = u + chosen["cfg_text_scale"] * (v - u)
    if chosen["cfg_renorm_type"] in ("channel", "text_channel"):
        size = lambda x: x.norm(dim=-1, keepdim=True)
    else:
        size = lambda x: x.flatten(1).norm(dim=1)[:, None, None]
    g = g * (size(v) / (size(g) + 1e-8)).clamp(chosen["cfg_renorm_min"], 1.0)
    inside = ((t > low) & (t <= high))[:, None, None]
    return torch.where(inside, g, v)
