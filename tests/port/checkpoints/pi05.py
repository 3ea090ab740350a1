"""Pi05 as LeRobot publishes it: sizes and the one file that the pipeline reads, some names those of Pi0."""

from pathlib import Path

from equality_worker import load

pi0 = load(Path(__file__).with_name("pi0.py"), "checkpoint_of_pi0")

PIPELINE = "Pi05Pipeline"
CASE = "pi05"
call = pi0.call


def published(name):
    return pi0.published(name).replace("model.time_mlp_", "model.action_time_mlp_")


def files(real, sizes):
    yield (
        "config.json",
        {"max_action_dim": 6, "max_state_dim": 5, "chunk_size": 4, "max_cameras": 1, "n_action_steps": 4},
    )
    yield "model.safetensors", {published(name): tensor for name, tensor in real.named_parameters()}


def build(folder, upstream, config, weights):
    from vllm_omni.diffusion.models.pi05.config import Pi05Config

    real = upstream.Pi05ForActionPrediction(Pi05Config.from_pretrained(folder))
    real.load_weights(weights(""))
    return real
