"""Pi05Pipeline: as Pi0Pipeline, with the state of the robot among the tokens of the prompt."""

from types import SimpleNamespace

import torch

PIPELINE = "Pi05Pipeline"
DENOISER = "pi05"
SAMPLING = {}
EXTRA = {"robot_obs": {}}
INFERENCE = True


def attach(pipeline, denoiser):
    pipeline.model = denoiser


def prompt(pipeline, length):
    pipeline.length = length


def on_decode(pipeline, report):
    def inputs(observation):
        generator = torch.Generator().manual_seed(pipeline.length)
        tokens = torch.randint(0, 1000, (1, 6), generator=generator)
        mask = torch.tensor([[True] * pipeline.length + [False] * (6 - pipeline.length)])
        return [torch.randn(1, 3, 224, 224, generator=generator)], [torch.ones(1, dtype=torch.bool)], tokens, mask

    def outputs(actions, observation):
        report(actions)
        return actions.numpy()

    pipeline.processor = SimpleNamespace(build_model_inputs=inputs, build_model_outputs=outputs)
