python -m verl_omni.trainer.main_diffusion \
    actor_rollout_ref.model.architecture=OmniWeaveForConditionalGeneration \
    actor_rollout_ref.model.target_modules="['query','key','value','join','fc1','fc2']" \
    actor_rollout_ref.model.fsdp_layer_prefixes="['plies.']"
