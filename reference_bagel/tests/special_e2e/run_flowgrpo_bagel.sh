#!/usr/bin/env bash
# Smoke test: FlowGRPO with LoRA on a tiny random BAGEL-7B-MoT, end to end.
#
# data script -> vllm-omni rollout -> reward -> log-probs -> update -> weight sync, for a few steps on 4 GPUs.
# Needs vllm-omni and nothing from the network; checkpoint and data are built here.
#
# Environment: NUM_GPUS, MODEL_PATH, DATA_DIR, TOTAL_TRAIN_STEPS, DEPLOY_CONFIG. Arguments are handed on as overrides.
set -xeuo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."

NUM_GPUS=${NUM_GPUS:-4}
MODEL_PATH=${MODEL_PATH:-$HOME/models/tiny-random/BAGEL-MoT}
DATA_DIR=${DATA_DIR:-$HOME/data/dummy_bagel}
TOTAL_TRAIN_STEPS=${TOTAL_TRAIN_STEPS:-2}
DEPLOY_CONFIG=${DEPLOY_CONFIG:-$PWD/examples/flowgrpo_trainer/bagel/bagel_deploy_config.yaml}

MAX_PROMPT_LENGTH=128
GROUP_SIZE=2
MICRO_BATCH=1
MINI_BATCH=$((MICRO_BATCH * NUM_GPUS))
TRAIN_BATCH=$((MINI_BATCH * GROUP_SIZE))

# Both sides have to use the same attention kernels.
if python3 -c 'import sys; from verl_omni.utils.diffusion_attention import fa3_available; sys.exit(not fa3_available())'; then
    attention=(actor_rollout_ref.model.attn_backend=_flash_3_varlen_hub actor_rollout_ref.rollout.rollout_attn_backend=FLASH_ATTN)
else
    attention=(actor_rollout_ref.model.attn_backend=native actor_rollout_ref.rollout.rollout_attn_backend=TORCH_SDPA)
fi

python3 tests/special_e2e/build_bagel_tiny_random.py --output-dir "$MODEL_PATH"
python3 tests/special_e2e/create_dummy_bagel_data.py \
    --local_save_dir "$DATA_DIR" \
    --model_path "$MODEL_PATH" \
    --max_prompt_length "$MAX_PROMPT_LENGTH" \
    --train_size "$TRAIN_BATCH" \
    --val_size 4

data=(
    data.train_files="$DATA_DIR/train.parquet"
    data.val_files="$DATA_DIR/test.parquet"
    data.train_batch_size=$TRAIN_BATCH
    data.max_prompt_length=$MAX_PROMPT_LENGTH
    data.trust_remote_code=True
)

model=(
    actor_rollout_ref.model.path="$MODEL_PATH"
    actor_rollout_ref.model.tokenizer_path="$MODEL_PATH"
    actor_rollout_ref.model.trust_remote_code=True
    actor_rollout_ref.model.algorithm=flow_grpo
    +actor_rollout_ref.model.architecture=OmniBagelForConditionalGeneration
    actor_rollout_ref.model.fsdp_layer_prefixes='["layers."]'
    actor_rollout_ref.model.lora_rank=8
    actor_rollout_ref.model.lora_alpha=16
    actor_rollout_ref.model.lora_dtype=float32
    actor_rollout_ref.model.target_modules='["q_proj_moe_gen", "k_proj_moe_gen", "v_proj_moe_gen", "o_proj_moe_gen", "mlp_moe_gen.gate_proj", "mlp_moe_gen.up_proj", "mlp_moe_gen.down_proj"]'
)

actor=(
    actor_rollout_ref.actor.optim.lr=0.0001
    actor_rollout_ref.actor.ppo_mini_batch_size=$MINI_BATCH
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=$MICRO_BATCH
    actor_rollout_ref.actor.diffusion_loss.clip_ratio=1e-05
    actor_rollout_ref.actor.fsdp_config.model_dtype=bfloat16
    actor_rollout_ref.actor.fsdp_config.param_offload=True
    actor_rollout_ref.actor.fsdp_config.optimizer_offload=True
    actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=$MICRO_BATCH
)

rollout=(
    actor_rollout_ref.rollout.name=vllm_omni
    actor_rollout_ref.rollout.n=$GROUP_SIZE
    actor_rollout_ref.rollout.tensor_model_parallel_size=1
    actor_rollout_ref.rollout.agent.num_workers=1
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=$MICRO_BATCH
    actor_rollout_ref.rollout.load_format=safetensors
    actor_rollout_ref.rollout.layered_summon=True
    actor_rollout_ref.rollout.enforce_eager=True
    +actor_rollout_ref.rollout.engine_kwargs.vllm_omni.deploy_config="$DEPLOY_CONFIG"
    actor_rollout_ref.rollout.pipeline.height=256
    actor_rollout_ref.rollout.pipeline.width=256
    actor_rollout_ref.rollout.pipeline.num_inference_steps=5
    actor_rollout_ref.rollout.pipeline.max_sequence_length=$MAX_PROMPT_LENGTH
    actor_rollout_ref.rollout.algo.noise_level=0.7
    actor_rollout_ref.rollout.algo.sde_type=sde
    actor_rollout_ref.rollout.algo.sde_window_size=2
    actor_rollout_ref.rollout.algo.sde_window_range='[0, 4]'
    actor_rollout_ref.rollout.val_kwargs.pipeline.num_inference_steps=5
    actor_rollout_ref.rollout.val_kwargs.algo.noise_level=0.0
)

# The reward is a rule, chosen by the data source of the dummy data: no reward model is served.
trainer=(
    algorithm.global_std=False
    reward.num_workers=1
    reward.reward_model.enable=False
    trainer.nnodes=1
    trainer.n_gpus_per_node=$NUM_GPUS
    trainer.project_name=verl-test
    trainer.experiment_name=flowgrpo-bagel-e2e
    trainer.logger=console
    trainer.log_val_generations=0
    trainer.val_before_train=False
    trainer.test_freq=-1
    trainer.save_freq=-1
    trainer.resume_mode=disable
    trainer.total_training_steps=$TOTAL_TRAIN_STEPS
)

python3 -m verl_omni.trainer.main_diffusion \
    "${data[@]}" "${model[@]}" "${attention[@]}" "${actor[@]}" "${rollout[@]}" "${trainer[@]}" "$@"

echo 'FlowGRPO smoke test of BAGEL-7B-MoT passed.'
