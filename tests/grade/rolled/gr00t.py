"""Gr00tN1d7Pipeline: time runs upwards in whole buckets; three modules in turn predict, written out in the loop."""

import sys
from types import SimpleNamespace
from unittest.mock import MagicMock

import torch

# Not installed here; the real pipeline normalises observations with it.
sys.modules.update({name: MagicMock() for name in ("scipy", "scipy.spatial", "scipy.spatial.transform")})

PIPELINE = "Gr00tN1d7Pipeline"
STEPS, HORIZON, WIDTH, BUCKETS = 5, 4, 6, 1000
LEVELS = [1 - i / STEPS for i in range(STEPS)]


def velocity(latents, sigma):
    bucket = ((1 - sigma) * BUCKETS).round().reshape(-1, 1, 1)
    return -(0.5 * latents + (bucket / 300).sin())  # towards the actions; training's points to the noise


def attach(pipeline):
    from vllm_omni.diffusion.models.gr00t.modeling.gr00t_n1d7 import Gr00tN1d7ActionHead

    head = Gr00tN1d7ActionHead.__new__(Gr00tN1d7ActionHead)
    torch.nn.Module.__init__(head)
    head.config = SimpleNamespace(action_horizon=HORIZON, add_pos_embed=False, use_alternate_vl_dit=False)
    head.action_dim, head.action_horizon = WIDTH, HORIZON
    head.num_inference_timesteps, head.num_timestep_buckets = STEPS, BUCKETS
    head.action_encoder = lambda actions, times, _: -velocity(actions, 1 - times / BUCKETS)
    head.model = lambda hidden_states, **_: hidden_states
    head.action_decoder = lambda output, _: output
    # As in the engine: an object that is not a module of torch holds the model.
    model = torch.nn.ModuleDict({"action_head": head})
    pipeline.policy = SimpleNamespace(language_key="text", model=model, get_action=lambda _, options: act(options))
    pipeline.device = "cpu"

    def act(options):
        features = torch.zeros(1, 2, 3)
        found = head.get_action_with_features(features, torch.zeros(1, 1, WIDTH), None, None, {}, options)
        pipeline.made = found["action_pred"]
        return {"actions": pipeline.made.numpy()}


EXTRA = {"robot_obs": {"state": {}, "language": {}, "video": {}}}
