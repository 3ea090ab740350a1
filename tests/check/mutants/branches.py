"""One of two branches is right, the other one is not."""

from mutants.edit import text
from mutants.mutant import MODEL, ROLLOUT, TRAINING, mutant

_CALL = "            context, latents = self._checkpointed_call(layer, context, latents, layout)\n"
_RETURN = "return (self.llm2vae(self.norm_moe_gen(latents)),)"


def _checkpointed(test: str, plain_first: bool = False):
    plain = "                context, latents = layer(context, latents, layout)\n"
    first, second = (plain, "    " + _CALL) if plain_first else ("    " + _CALL, plain)
    return text(MODEL, _CALL, f"            if {test}:\n{first}            else:\n{second}")


MUTANTS = [
    mutant(
        "checkpointed only above the released size",
        ("M5", 10),
        "105",
        _checkpointed("self.config.num_hidden_layers > 48"),
    ),
    mutant("checkpointed only with many layers", ("M5", 10), "105", _checkpointed("len(self.layers) >= 40")),
    mutant("plain up to the released width", ("M5", 10), "105", _checkpointed("self.config.hidden_size < 8192", True)),
    mutant(
        "tensor in training, tuple otherwise",
        ("M5", 39),
        "108",
        text(
            MODEL,
            _RETURN,
            "velocity = self.llm2vae(self.norm_moe_gen(latents))\n        return velocity if self.training else (velocity,)",
        ),
    ),
    mutant(
        "tuple in training, tensor otherwise",
        ("M5", 39),
        "108",
        text(
            MODEL,
            _RETURN,
            "velocity = self.llm2vae(self.norm_moe_gen(latents))\n"
            "        if self.training:\n            return (velocity,)\n        return velocity",
        ),
    ),
    mutant(
        "result chosen by a name",
        ("M5", 39),
        "108",
        text(
            MODEL,
            _RETURN,
            "velocity = self.llm2vae(self.norm_moe_gen(latents))\n"
            "        result = (velocity,) if text_length else velocity\n        return result",
        ),
    ),
    mutant(
        "result bound again in a branch",
        ("M5", 39),
        "108",
        text(
            MODEL,
            _RETURN,
            "velocity = self.llm2vae(self.norm_moe_gen(latents))\n        result = (velocity,)\n"
            "        if not self.training:\n            result = velocity\n        return result",
        ),
    ),
    mutant(
        "step's result in another order without guidance",
        ("T5",),
        "209",
        text(
            TRAINING,
            "return log_prob, prev_sample_mean, std_dev_t, sqrt_dt",
            'if guidance["cfg_text_scale"] <= 1.0:\n            return log_prob, prev_sample_mean, sqrt_dt, std_dev_t\n'
            "        return log_prob, prev_sample_mean, std_dev_t, sqrt_dt",
        ),
    ),
    mutant(
        "step's result in another order by a conditional",
        ("T5",),
        "209",
        text(
            TRAINING,
            "return log_prob, prev_sample_mean, std_dev_t, sqrt_dt",
            "result = (log_prob, prev_sample_mean, std_dev_t, sqrt_dt)\n"
            "        return result if step else (log_prob, std_dev_t, prev_sample_mean, sqrt_dt)",
        ),
    ),
    mutant(
        "names of weights or nothing",
        (24,),
        "313",
        text(
            ROLLOUT,
            "return super().load_weights(self._checkpoint_names(self._summed(weights)))",
            "loaded = super().load_weights(self._checkpoint_names(self._summed(weights)))\n"
            "        return loaded if self.training else None",
        ),
    ),
    mutant(
        "another module without LoRA",
        ("T2",),
        "202 110 111",
        text(
            TRAINING,
            "return BagelForTraining.from_pretrained(model_config.local_path, torch_dtype=torch_dtype)",
            "return BagelForTraining.from_pretrained(model_config.local_path, torch_dtype=torch_dtype)"
            " if model_config.lora_rank else BagelForTraining(BagelTrainingConfig())",
        ),
    ),
    mutant(
        "schedule of its own for few steps",
        ("T3", 30),
        "204 223 203",
        text(
            TRAINING,
            "        setup_bagel_sigmas(scheduler, model_config.pipeline.num_inference_steps, device=device)\n",
            "        steps = model_config.pipeline.num_inference_steps\n"
            "        if steps < 8:\n            scheduler.set_timesteps(steps, device=device)\n"
            "        else:\n            setup_bagel_sigmas(scheduler, steps, device=device)\n",
        ),
    ),
    mutant(
        "velocity cast in one branch",
        ("T5", 13),
        "213",
        text(TRAINING, "model_output=velocity,", "model_output=velocity if step else velocity.bfloat16(),"),
    ),
    mutant(
        "batch dimension only in the window",
        ("R4", 6),
        "304",
        text(ROLLOUT, "sample = sample.float()[None]", "sample = sample.float()[None] if inside else sample.float()"),
    ),
    mutant(
        "batch dimension kept outside of the window",
        ("R4", 6),
        "304",
        text(
            ROLLOUT,
            "return _StepOutput(prev_sample[0], None",
            "return _StepOutput(prev_sample[0] if inside else prev_sample, None",
        ),
    ),
    mutant(
        "window per request where a seed is given",
        ("R6", 15),
        "308",
        text(
            ROLLOUT,
            "        self.scheduler.begin(\n",
            "        if params.seed is not None and window is not None:\n"
            "            first = params.seed % 5\n            window = (first, first + 2)\n"
            "        self.scheduler.begin(\n",
        ),
    ),
    mutant(
        "padding mask left out for short prompts",
        ("T4", 42, 9),
        "116 117 216",
        text(TRAINING, "        if len(set(lengths)) == 1:\n", "        if max(lengths) < 64:\n"),
    ),
]
