"""Pi0Pipeline: the loop is a method of the module inside, which also predicts; the prompt is encoded before it."""

import torch

PIPELINE = "Pi0Pipeline"
DENOISER = "pi0"
SAMPLING = {}
INFERENCE = True
HORIZON, WIDTH = 4, 6
EXTRA = {"robot_obs": {}, "noise": torch.randn(1, HORIZON, WIDTH, generator=torch.Generator().manual_seed(9))}


def attach(pipeline, denoiser):
    from types import SimpleNamespace

    denoiser.float()
    pipeline.model, pipeline._device, pipeline.tokenizer = denoiser, torch.device("cpu"), None
    pipeline.config = SimpleNamespace(chunk_size=HORIZON, max_action_dim=WIDTH)


def prompt(pipeline, length):
    pipeline.length = length


def request(pipeline):
    return {"prompt": "a prompt"}


def on_decode(pipeline, report):
    from vllm_omni.diffusion.models.pi0 import pipeline_pi0

    def inputs(observation, *_):
        def tensor(*shape):
            return torch.randn(*shape, generator=torch.Generator().manual_seed(pipeline.length))

        tokens = torch.randint(0, 1000, (1, 6), generator=torch.Generator().manual_seed(pipeline.length))
        mask = torch.tensor([[True] * pipeline.length + [False] * (6 - pipeline.length)])
        return [tensor(1, 3, 224, 224)], [torch.ones(1, dtype=torch.bool)], tokens, mask, tensor(1, 5)

    def actions(found):
        report(found)
        return found

    pipeline_pi0.build_model_inputs = inputs
    pipeline.model._normalize_state = lambda state: state
    pipeline.model._unnormalize_actions = actions
