"""A value whose name is there and which does not arrive: its shape is taken, a default stands in its place."""

from mutants.edit import text
from mutants.mutant import MODEL, ROLLOUT, TRAINING, mutant

MUTANTS = [
    # The input of a module, by its shape
    mutant(
        "time embedded of zeros in the features' shape",
        ("M7",),
        "137 135 134 121",
        text(
            MODEL,
            "self.time_embedder(features.to(context.dtype))",
            "self.time_embedder(torch.zeros_like(features).to(context.dtype))",
        ),
    ),
    mutant(
        "noisy latents drawn anew in forward",
        ("M7",),
        "137 135 134 121",
        text(
            MODEL,
            "self.vae2llm(hidden_states.to(context.dtype))",
            "self.vae2llm(torch.randn_like(hidden_states, dtype=context.dtype))",
        ),
    ),
    mutant(
        "positions all zero in the shape of those given",
        ("M7", 27),
        "137 135 134 121",
        text(
            MODEL,
            "self.latent_pos_embed(latent_pos_ids)",
            "self.latent_pos_embed(latent_pos_ids.new_zeros(latent_pos_ids.shape))",
        ),
    ),
    mutant(
        "positions counted by the ids' length",
        ("M7", 27),
        "137 135 134 121",
        text(
            MODEL,
            "self.latent_pos_embed(latent_pos_ids)",
            "self.latent_pos_embed(torch.arange(latent_pos_ids.shape[1], device=device)[None])",
        ),
    ),
    mutant(
        "text ids by their shape",
        ("M7", "T4"),
        "137 135 134 121",
        text(
            MODEL,
            "ids = [] if text_token_ids is None else [text_token_ids]",
            "ids = [] if text_token_ids is None else [torch.ones_like(text_token_ids)]",
        ),
    ),
    mutant(
        "time times zero",
        ("M7",),
        "137 135 134 121",
        text(
            MODEL,
            "self.time_embedder(features.to(context.dtype))[:, None]",
            "0.0 * self.time_embedder(features.to(context.dtype))[:, None]",
        ),
    ),
    mutant(
        "position embedding in shape alone",
        ("M7",),
        "137 135 134 121",
        text(
            MODEL,
            "(latents + self.latent_pos_embed(latent_pos_ids)).to(context.dtype)",
            "(latents + torch.zeros_like(self.latent_pos_embed(latent_pos_ids))).to(context.dtype)",
        ),
    ),
    mutant(
        "time added to zeros by a name",
        ("M7",),
        "137 135 134 121",
        text(
            MODEL,
            "        latents = latents + self.time_embedder(features.to(context.dtype))[:, None]\n",
            "        embedded = self.time_embedder(features.to(context.dtype))\n"
            "        latents = latents + torch.zeros(embedded.shape, dtype=embedded.dtype, device=device)[:, None]\n",
        ),
    ),
    mutant(
        "keys replaced by zeros of their shape",
        ("M7", "M8"),
        "137 121 134",
        text(
            MODEL,
            "k_latents = self.k_norm_moe_gen(k_latents)",
            "k_latents = torch.zeros_like(self.k_norm_moe_gen(k_latents))",
        ),
    ),
    # The training adapter
    mutant(
        "noisy latents of the batch by their shape",
        ("T4",),
        "137 220",
        text(TRAINING, '"hidden_states": latents[:, step],', '"hidden_states": torch.randn_like(latents[:, step]),'),
    ),
    mutant(
        "noise level one in the timesteps' shape",
        ("T4",),
        "137 220",
        text(
            TRAINING,
            "timestep_features(timesteps[:, step])",
            "timestep_features(torch.ones_like(timesteps[:, step]))",
        ),
    ),
    mutant(
        "sample of the step by its shape",
        ("T5",),
        "137 220",
        text(TRAINING, "sample=latents[:, step].float()", "sample=torch.zeros_like(latents[:, step]).float()"),
    ),
    mutant(
        "next sample by its shape",
        ("T5",),
        "137 220",
        text(
            TRAINING,
            "prev_sample=latents[:, step + 1].float()",
            "prev_sample=torch.empty_like(latents[:, step + 1]).float()",
        ),
    ),
    mutant(
        "unconditional velocity of zeros",
        ("T5",),
        "137 212",
        text(
            TRAINING,
            "unconditional = module(**negative_model_inputs)[0].float()",
            "unconditional = torch.zeros_like(module(**negative_model_inputs)[0].float())",
        ),
    ),
    mutant(
        "velocity by its shape at the step",
        ("T5",),
        "137 220",
        text(TRAINING, "model_output=velocity,", "model_output=torch.zeros_like(velocity),"),
    ),
    mutant(
        "noise level of the gate by its shape",
        ("T5",),
        "137 228",
        text(TRAINING, "sigma = sigma.double()", "sigma = torch.ones_like(sigma).double()"),
    ),
    mutant(
        "log-prob replaced by zeros",
        ("T5",),
        "137 209",
        text(
            TRAINING,
            "return log_prob, prev_sample_mean, std_dev_t, sqrt_dt",
            "return torch.zeros_like(log_prob), prev_sample_mean, std_dev_t, sqrt_dt",
        ),
    ),
    # The rollout adapter
    mutant(
        "log-probs of zeros handed back",
        ("R6",),
        "137 314",
        text(
            ROLLOUT,
            "trajectory_log_probs=log_probs,",
            "trajectory_log_probs=None if log_probs is None else torch.zeros_like(log_probs),",
        ),
    ),
    mutant(
        "recorded latents by their shape",
        ("R6",),
        "137 314",
        text(ROLLOUT, "self._latents.append(prev_sample)", "self._latents.append(torch.empty_like(prev_sample))"),
    ),
    mutant(
        "sample of the step drawn anew",
        ("R4",),
        "137",
        text(ROLLOUT, "sample = sample.float()[None]", "sample = torch.randn_like(sample.float())[None]"),
    ),
    mutant(
        "velocity of the step by its shape",
        ("R4",),
        "137",
        text(
            ROLLOUT,
            "model_output=model_output.float()[None],",
            "model_output=torch.zeros_like(model_output).float()[None],",
        ),
    ),
    mutant(
        "weights sent by their shape",
        (24,),
        "137 313",
        text(
            ROLLOUT,
            "            yield name, tensor\n\n    def map_lora",
            "            yield name, torch.empty_like(tensor)\n\n    def map_lora",
        ),
    ),
    # Loading and saving
    mutant(
        "tensors of the file by their shape",
        ("M6",),
        "137",
        text(
            MODEL,
            "state[target] = file.get_tensor(source)",
            "state[target] = torch.empty_like(file.get_tensor(source))",
        ),
    ),
    mutant(
        "saved weights by their shape",
        ("M6",),
        "137",
        text(MODEL, "{name: tensor.contiguous() for", "{name: torch.zeros_like(tensor).contiguous() for"),
    ),
    mutant(
        "configuration saved with the class's defaults",
        ("M1", 36),
        "138",
        text(MODEL, "**asdict(self)}, file", "**asdict(type(self)())}, file"),
    ),
    mutant(
        "configuration saved with the defaults of its fields",
        ("M1", 36),
        "138",
        text(MODEL, "**asdict(self)}, file", "**{field.name: field.default for field in fields(self)}}, file"),
    ),
    mutant(
        "configuration saved from a new object by name",
        ("M1", 36),
        "138",
        text(
            MODEL,
            "            json.dump({_CONFIG_MARK: type(self).__name__, **asdict(self)}, file",
            "            sizes = asdict(BagelTrainingConfig())\n"
            "            json.dump({_CONFIG_MARK: type(self).__name__, **sizes}, file",
        ),
    ),
    mutant(
        "configuration saved from the class's attributes",
        ("M1", 36),
        "138",
        text(
            MODEL,
            "**asdict(self)}, file",
            "**{field.name: getattr(type(self), field.name) for field in fields(self)}}, file",
        ),
    ),
    mutant(
        "one size saved as it is by default",
        ("M1", 36),
        "138",
        text(MODEL, "**asdict(self)}, file", '**asdict(self), "vocab_size": type(self).vocab_size}, file'),
    ),
    mutant(
        "another field saved under a field's name",
        ("M1", 36),
        "138 132",
        text(MODEL, "**asdict(self)}, file", '**asdict(self), "intermediate_size": self.hidden_size}, file'),
    ),
    mutant(
        "module built with the default sizes",
        ("M1", "M6"),
        "138",
        text(MODEL, "model = cls(config)", "model = cls(BagelTrainingConfig())"),
    ),
    mutant(
        "module keeps the default sizes",
        ("M1", 36),
        "138",
        text(MODEL, "self.config = config\n        hidden", "self.config = BagelTrainingConfig()\n        hidden"),
    ),
    mutant(
        "default configuration saved with the weights",
        ("M1", 36),
        "138 115",
        text(MODEL, "self._save_config(save_directory)", "type(self.config)().save_pretrained(save_directory)"),
    ),
]
