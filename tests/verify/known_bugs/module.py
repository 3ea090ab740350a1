"""The training module by itself: arguments, determinism, batches, checkpointing, sharding."""

from __future__ import annotations

from known_bugs.bug import BEFORE_OUTPUT, MODEL, OTHERS, ROLLOUT, TRAINING, Bug

CONTEXT_UPDATE = "        context_update, latents_update = self.self_attn(\n"

BUGS = (
    Bug(
        1,
        "image tokens at the padded length",
        ((MODEL, "            first = text_mask.sum(dim=1, keepdim=True, dtype=torch.float32)\n", ""),),
        ("padding-invariance",),
    ),
    Bug(
        8,
        "padded keys attended to",
        ((MODEL, "            self.key_mask = F.pad(text_mask, (0, 2 + latent_length), value=True)\n", ""),),
        ("padding-invariance",),
    ),
    Bug(
        10,
        "gradient checkpointing claimed and not used",
        ((MODEL, "self._checkpointed_call(layer, context, latents, layout)", "layer(context, latents, layout)"),),
        ("gradient-checkpointing",),
    ),
    Bug(
        10,
        "gradient checkpointing without gradients",
        (
            (
                MODEL,
                "self._checkpointed_call(layer, context, latents, layout)",
                "(self._gradient_checkpointing_func or torch.nn.Module.__call__)(layer, context, latents, layout)",
            ),
        ),
        ("checkpointing-under-no-grad",),
        ("gradient-checkpointing", "lora-learns"),
    ),
    Bug(
        19,
        "one of two ways of a gradient is cut, each parameter has the other",
        ((MODEL, "context = context + self.mlp(", "context = context.detach() + self.mlp("),),
        ("gradient-paths",),
    ),
    Bug(
        12,
        "dropout in train mode",
        (
            (
                MODEL,
                "        return (self.llm2vae(",
                "        latents = F.dropout(latents, 0.1, self.training)\n        return (self.llm2vae(",
            ),
        ),
        ("train-mode",),
        ("gradient-checkpointing",),
    ),
    Bug(
        26,
        "two architecture strings",
        ((ROLLOUT, '@VllmOmniPipelineBase.register("Omni', '@VllmOmniPipelineBase.register("Other'),),
        ("registration",),
    ),
    Bug(
        27,
        "key that forward does not take",
        ((TRAINING, '"latent_pos_ids": cls', '"position_ids": cls'),),
        ("input-keys", "forward"),
        OTHERS,
    ),
    Bug(
        32,
        "layer class that does not exist",
        ((MODEL, '_no_split_modules = ["', '_no_split_modules = ["Old'),),
        ("layer-prefixes", "fsdp2-gloo"),
    ),
    Bug(
        39,
        "bare tensor",
        (
            (
                MODEL,
                "return (self.llm2vae(self.norm_moe_gen(latents)),)",
                "return self.llm2vae(self.norm_moe_gen(latents))",
            ),
        ),
        ("forward",),
        ("padding-invariance", "lora-learns", "sde-step"),
    ),
    Bug(
        40,
        "adapter with state",
        ((TRAINING, "    @classmethod\n    def build_scheduler(cls, ", "    def build_scheduler(cls, "),),
        ("signatures",),
    ),
    Bug(
        42,
        "host synchronisation",
        (
            (
                MODEL,
                "        features = timestep_features",
                "        assert timestep.abs().max().item() >= 0\n        features = timestep_features",
            ),
        ),
        ("host-synchronisation",),
    ),
    Bug(
        None,
        "noise inside the model",
        ((MODEL, BEFORE_OUTPUT, "        latents = latents + 1e-3 * torch.randn_like(latents)\n" + BEFORE_OUTPUT),),
        ("determinism",),
        OTHERS,
    ),
    Bug(
        None,
        "samples of a batch mixed",
        (
            (
                MODEL,
                BEFORE_OUTPUT,
                "        latents = latents - 0.1 * latents.mean(dim=0, keepdim=True)\n" + BEFORE_OUTPUT,
            ),
        ),
        ("batch-equals-singles",),
        ("padding-invariance",),
    ),
    Bug(
        None,
        "place of a latent forgotten",
        (
            (
                MODEL,
                "(latents + self.latent_pos_embed(latent_pos_ids))",
                "(latents + 0 * self.latent_pos_embed(latent_pos_ids))",
            ),
        ),
        ("inputs-matter",),
    ),
    Bug(
        35,
        "weight of a layer read outside of it",
        (
            (
                MODEL,
                BEFORE_OUTPUT,
                "        latents = latents + self.layers[0].mlp.up_proj.weight.sum()\n" + BEFORE_OUTPUT,
            ),
        ),
        ("fsdp2-gloo", "fsdp2-bf16", "fsdp1-bf16"),
    ),
    Bug(
        13,
        "rotary tables where mixed precision rounds them",
        (
            (
                MODEL,
                "self._checkpointed_call(layer, context, latents, layout)",
                "self._checkpointed_call(layer, context, latents, layout, layout.rotary)",
            ),
            (
                MODEL,
                "layout: Layout, recompute: Recompute = call",
                "layout: Layout, x, recompute: Recompute = call",
            ),
            (
                MODEL,
                CONTEXT_UPDATE,
                f"        layout.rotary = x\n{CONTEXT_UPDATE}",
            ),
        ),
        ("fsdp2-bf16",),
    ),
    Bug(
        None,
        "another function once distributed",
        (
            (
                MODEL,
                BEFORE_OUTPUT,
                "        if torch.distributed.is_initialized():\n            latents = latents.cos()\n" + BEFORE_OUTPUT,
            ),
        ),
        ("fsdp2-gloo",),
    ),
)
