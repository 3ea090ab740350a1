"""Settings of every run besides the package's own smoke script: environment variables and overrides."""

from __future__ import annotations

from collections.abc import Mapping

# docs/train.md gives the reason of each.
VARIABLES: Mapping[str, str] = {
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    "TOKENIZERS_PARALLELISM": "false",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # on Linux too: no cluster, so that servers listen on 127.0.0.1 alone
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_prestart_worker_first_driver": "0",  # they would wait for tasks, and every actor has a process of its own
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "HYDRA_FULL_ERROR": "1",
    "PYTHONUNBUFFERED": "1",
}
# The user's variables with locations; others could affect the measurements.
PASSED_ON = ("HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "USER")

PROMPTS = 4
IMAGES = 8  # of each prompt
LEARNING_RATE = 3e-3
SIDE = 64  # pixels


def overrides(
    dtype: str, processes: int, seed: int, *, engines: int = 0, cpus: int = 0, stand_ins: bool = True
) -> dict[str, str]:
    """Hydra overrides that every run needs; what a variant changes comes after them.

    Args:
        dtype: of rollout and training.
        processes: of the trainer.
        seed: of the rollouts; a step adds its number.
        engines: ranks of the engine apart from the trainer's processes, each of which has a "GPU" too.
        cpus: of Ray that are needed beyond what the processes, the agent loop and the reward take.
        stand_ins: whether Ray is told of a "GPU" for each process, where there is none.
    """
    rollout, actor = "actor_rollout_ref.rollout", "actor_rollout_ref.actor"
    return {
        **({"+ray_kwargs.ray_init.num_gpus": str(processes + engines)} if stand_ins else {}),
        # Ray waits for ever for resources it lacks, so it is told of as many CPUs as are requested, not the machine's.
        "ray_kwargs.ray_init.num_cpus": str(8 + 2 * (processes + engines) + cpus),
        "+ray_kwargs.ray_init.include_dashboard": "False",
        "+ray_kwargs.ray_init.object_store_memory": "500000000",
        "trainer.logger": "[console,file]",
        f"{rollout}.enable_prefix_caching": "False",  # of a language model; vllm-omni 0.30.0 refuses it elsewhere
        f"{rollout}.dtype": dtype,
        f"{rollout}.n": str(IMAGES),
        f"{rollout}.log_prob_micro_batch_size_per_gpu": str(IMAGES),
        f"{rollout}.pipeline.height": str(SIDE),
        f"{rollout}.pipeline.width": str(SIDE),
        f"{rollout}.seed": str(1000 * seed),
        f"{rollout}.rollout_attn_backend": "TORCH_SDPA",
        f"{rollout}.calculate_log_probs": "True",
        f"{actor}.fsdp_config.model_dtype": dtype,
        f"+{actor}.fsdp_config.mixed_precision.param_dtype": dtype,
        f"{actor}.ppo_mini_batch_size": str(PROMPTS),
        f"{actor}.ppo_micro_batch_size_per_gpu": str(IMAGES),
        f"{actor}.optim.lr": str(LEARNING_RATE),
        "actor_rollout_ref.model.attn_backend": "native",
        "data.train_batch_size": str(PROMPTS),
        "data.dataloader_num_workers": "0",
        "trainer.total_epochs": "1000",
    }
