#!/usr/bin/env bash
# FlowGRPO with LoRA on BAGEL-7B-MoT: OCR prompts, 4 GPUs, vllm-omni for the rollouts.
#
# Run from the repository root, after examples/flowgrpo_trainer/data_process/bagel_ocr.py has made the data.
# Arguments are handed on as overrides, for example trainer.total_training_steps=10.
#
# Environment:
#   MODEL_PATH    checkpoint folder (default ~/models/ByteDance-Seed/BAGEL-7B-MoT)
#   DATA_DIR      folder with train.parquet and test.parquet (default $WORKSPACE/data/ocr/bagel)
#   WORKSPACE     any writable folder (default $HOME)
#   NUM_GPUS      GPUs of this machine (default 4); they have to divide the 256 images of an update
#   OFFLOAD       True keeps parameters and optimizer on the CPU while the rollout runs (default False); that
#                 makes room on the card and may take most of a step
#   ROLLOUT_DATA_DIR  folder for the images of every step, with prompt and score (default: they are not kept)
#   LOG           what the trainer prints (default $DATA_DIR/train.log)
#   MAX_LOST_FRACTION  part of the samples that may be lost, because a request or its reward failed, before this script
#                 fails at its end (default 0.01); the trainer logs each, and goes on with those that are left
#
# Gradient checkpointing recomputes all 28 layers. Fewer is faster, and each one less takes 4.4 GiB: set checkpointed_layers
# of BagelForTraining in bagel_model.py. On 4 GPUs 80 GiB bear 16, 96 GiB bear 13, 141 GiB bear 4, which leaves a
# tenth of the card free; what a rollout engine keeps there has to be subtracted.
set -xeuo pipefail

WORKSPACE=${WORKSPACE:-$HOME}
MODEL_PATH=${MODEL_PATH:-$HOME/models/ByteDance-Seed/BAGEL-7B-MoT}
DATA_DIR=${DATA_DIR:-$WORKSPACE/data/ocr/bagel}
DEPLOY_CONFIG=${DEPLOY_CONFIG:-"$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/bagel_deploy_config.yaml"}

NUM_GPUS=${NUM_GPUS:-4}
OFFLOAD=${OFFLOAD:-False}
# GPUs that share one engine of the rollout.
ROLLOUT_TP=1
REWARD_TP=$((NUM_GPUS < 4 ? NUM_GPUS : 4))
MAX_PROMPT_LENGTH=256
LOG=${LOG:-$DATA_DIR/train.log}
MAX_LOST_FRACTION=${MAX_LOST_FRACTION:-0.01}
PROMPTS=32
GROUP_SIZE=16
for override in "$@"; do
    case $override in
        data.train_batch_size=*) PROMPTS=${override#*=} ;;
        actor_rollout_ref.rollout.n=*) GROUP_SIZE=${override#*=} ;;
    esac
done
export RAY_DEDUP_LOGS=${RAY_DEDUP_LOGS:-0} # every line of every worker is looked at
mkdir -p "$(dirname "$LOG")"

data=(
    data.train_files="$DATA_DIR/train.parquet"
    data.val_files="$DATA_DIR/test.parquet"
    data.train_batch_size=32
    data.max_prompt_length=$MAX_PROMPT_LENGTH
    data.trust_remote_code=True
)

# No model_index.json tells the architecture of this checkpoint: it has to be named.
model=(
    actor_rollout_ref.model.path="$MODEL_PATH"
    actor_rollout_ref.model.tokenizer_path="$MODEL_PATH"
    actor_rollout_ref.model.trust_remote_code=True
    actor_rollout_ref.model.attn_backend=native
    actor_rollout_ref.model.algorithm=flow_grpo
    +actor_rollout_ref.model.architecture=OmniBagelForConditionalGeneration
    actor_rollout_ref.model.fsdp_layer_prefixes='["layers."]'
    actor_rollout_ref.model.lora_rank=64
    actor_rollout_ref.model.lora_alpha=128
    actor_rollout_ref.model.lora_dtype=float32
    actor_rollout_ref.model.target_modules='["q_proj_moe_gen", "k_proj_moe_gen", "v_proj_moe_gen", "o_proj_moe_gen", "mlp_moe_gen.gate_proj", "mlp_moe_gen.up_proj", "mlp_moe_gen.down_proj"]'
)

actor=(
    actor_rollout_ref.actor.strategy=fsdp2
    actor_rollout_ref.actor.optim.lr=0.0001
    actor_rollout_ref.actor.optim.weight_decay=0.0001
    actor_rollout_ref.actor.checkpoint.save_contents='["model", "optimizer", "extra"]'
    actor_rollout_ref.actor.ppo_mini_batch_size=16
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16
    actor_rollout_ref.actor.diffusion_loss.clip_ratio=1e-05
    actor_rollout_ref.actor.fsdp_config.model_dtype=bfloat16
    actor_rollout_ref.actor.fsdp_config.param_offload=$OFFLOAD
    actor_rollout_ref.actor.fsdp_config.optimizer_offload=$OFFLOAD
    actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=16
)

# Training knows no attention but torch's scaled_dot_product_attention, whatever attn_backend says: the rollout has it, too.
rollout=(
    actor_rollout_ref.rollout.name=vllm_omni
    actor_rollout_ref.rollout.n=16
    actor_rollout_ref.rollout.tensor_model_parallel_size=$ROLLOUT_TP
    actor_rollout_ref.rollout.agent.num_workers=$((NUM_GPUS / ROLLOUT_TP))
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=16
    actor_rollout_ref.rollout.max_num_seqs=16
    actor_rollout_ref.rollout.load_format=safetensors
    actor_rollout_ref.rollout.layered_summon=True
    ++actor_rollout_ref.rollout.enable_prefix_caching=False
    actor_rollout_ref.rollout.rollout_attn_backend=TORCH_SDPA
    actor_rollout_ref.rollout.calculate_log_probs=True
    +actor_rollout_ref.rollout.engine_kwargs.vllm_omni.deploy_config="$DEPLOY_CONFIG"
    actor_rollout_ref.rollout.pipeline.height=512
    actor_rollout_ref.rollout.pipeline.width=512
    actor_rollout_ref.rollout.pipeline.num_inference_steps=15
    actor_rollout_ref.rollout.pipeline.max_sequence_length=$MAX_PROMPT_LENGTH
    actor_rollout_ref.rollout.algo.noise_level=0.7
    actor_rollout_ref.rollout.algo.sde_type=sde
    actor_rollout_ref.rollout.algo.sde_window_size=2
    actor_rollout_ref.rollout.algo.sde_window_range='[0, 7]'
    actor_rollout_ref.rollout.val_kwargs.pipeline.num_inference_steps=50
    actor_rollout_ref.rollout.val_kwargs.algo.noise_level=0.0
)

# A vision-language model reads each image; the reward is how close its transcription comes to the quoted words.
reward=(
    reward.num_workers=$((NUM_GPUS / REWARD_TP))
    reward.reward_model.enable=True
    reward.reward_model.model_path=Qwen/Qwen3-VL-8B-Instruct
    reward.reward_model.rollout.name=vllm
    reward.reward_model.rollout.tensor_model_parallel_size=$REWARD_TP
    reward.custom_reward_function.path=verl_omni/utils/reward_score/genrm_ocr.py
    reward.custom_reward_function.name=compute_score_ocr
)

trainer=(
    algorithm.global_std=False
    trainer.nnodes=1
    trainer.n_gpus_per_node=$NUM_GPUS
    trainer.project_name=flow_grpo
    trainer.experiment_name=bagel_ocr_lora
    trainer.logger='["console", "wandb"]'
    trainer.log_val_generations=8
    trainer.val_before_train=False
    trainer.total_epochs=15
    trainer.total_training_steps=300
    trainer.save_freq=30
    trainer.test_freq=30
    trainer.max_actor_ckpt_to_keep=2
    trainer.validation_data_dir='checkpoints/${trainer.project_name}/${trainer.experiment_name}/validation'
    trainer.rollout_data_dir="${ROLLOUT_DATA_DIR:-null}"
    trainer.use_v1=False
    transfer_queue.enable='${trainer.use_v1}'
)

# Settings that cannot work, and a last save that is not whole, are told here; with LoRA a save then holds the adapter
# alone, where VeRL can do that.
saving=$(python3 verl_omni/pipelines/flow_grpo_runtime/before_start.py --side 16 --most 1024 --more-steps=-1 -- \
    "${data[@]}" "${model[@]}" "${actor[@]}" "${rollout[@]}" "${reward[@]}" "${trainer[@]}" "$@")
saving=${saving##*$'\n'} # its last line

python3 -m verl_omni.trainer.main_diffusion_v1 \
    "${data[@]}" "${model[@]}" "${actor[@]}" "${rollout[@]}" "${reward[@]}" "${trainer[@]}" ${saving:+"$saving"} "$@" 2>&1 | tee "$LOG"

{ set +x; } 2>/dev/null
awk -v most="$MAX_LOST_FRACTION" -v samples="$((PROMPTS * GROUP_SIZE))" -v log_file="$LOG" '
    /Error in _run_prompt for uid=/ { lost++ }
    /step:[0-9]+ - .*critic\/rewards\/mean:/ { steps++ }
    END {
        printf "%d of %d samples were lost\n", lost, steps * samples
        if (lost > most * steps * samples) {
            printf "more than MAX_LOST_FRACTION=%s: see Error in _run_prompt in %s\n", most, log_file > "/dev/stderr"
            exit 1
        }
    }' "$LOG"
