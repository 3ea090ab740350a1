python -m verl_omni.trainer.main_diffusion \
    actor_rollout_ref.model.architecture=OmniMosaicForConditionalGeneration \
    actor_rollout_ref.model.target_modules="['ask','take','give','wide','narrow']" \
    actor_rollout_ref.model.fsdp_layer_prefixes="['storeys.']"
