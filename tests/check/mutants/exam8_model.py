"""The training module, by the last step of following: lost results, loops, helpers, devices, masks, filters."""

from mutants.edit import Edit, text
from mutants.mutant import MODEL, ROLLOUT, Mutant, mutant

_IDS = "for name, value in asdict(self).items()"
_SAVED = "{_CONFIG_MARK: type(self).__name__, **asdict(self)}"
_TIME = "latents = latents + self.time_embedder(features.to(context.dtype))[:, None]"
_EMBEDDED = "self.time_embedder(features.to(context.dtype))[:, None]"
_LOOP = "context, latents = self._checkpointed_call(layer, context, latents, layout)"
_OUT = "return (self.llm2vae(self.norm_moe_gen(latents)),)"
_TABLES = "for name, tensor in checkpoint_tensors(base)}"
_ATTENDED = "attn_mask=key_mask[:, None, None, :])"
_PAD = "F.pad(text_mask, (0, 2 + latent_length), value=True)"
_MARKER = "torch.full((batch, 1), marker, device=device)"
_CLASS = "class BagelForTraining(NonDiffusersModelBase):"
_FROM = "    @classmethod\n    def from_pretrained("


def slip(name: str, items: tuple, rules: str, *pairs: tuple[str, str], path: str = MODEL) -> Mutant:
    """Return a mutant with texts replaced that stand there once."""
    return mutant(name, items, rules, *(text(path, old, new) for old, new in pairs))


def loop(new: str) -> Edit:
    """Replace the call of a layer."""
    return text(MODEL, f"            {_LOOP}\n", new)


MUTANTS = [
    # A configuration that a filter makes smaller
    slip(
        "fields that end in _id are filtered out of what is saved",
        ("M1", 36),
        "113",
        (_SAVED, f'{{_CONFIG_MARK: type(self).__name__, **{{name: value {_IDS} if not name.endswith("_id")}}}}'),
    ),
    slip(
        "only some beginnings of fields are saved",
        ("M1", 36),
        "113",
        (
            _SAVED,
            "{_CONFIG_MARK: type(self).__name__, **{f.name: getattr(self, f.name) for f in fields(self)"
            ' if f.name.startswith(("hidden", "num", "latent", "max", "vae", "intermediate", "rope", "rms"))}}',
        ),
    ),
    slip(
        "token ids are taken out of what is saved, in a loop",
        ("M1", 36),
        "113",
        (
            f"            json.dump({_SAVED}",
            "            saved = asdict(self)\n            for name in list(saved):\n"
            '                if name.endswith("image_id"):\n                    saved.pop(name)\n'
            "            json.dump({_CONFIG_MARK: type(self).__name__, **saved}",
        ),
    ),
    # Bases in an order that Python refuses
    slip(
        "a module before its heir among the bases",
        ("M2",),
        "150",
        (_CLASS, "class BagelForTraining(nn.Module, NonDiffusersModelBase):"),
    ),
    slip(
        "a module before the pipeline among the bases",
        ("R2",),
        "150",
        (
            "class BagelPipelineWithLogProb(BagelPipeline):",
            "class BagelPipelineWithLogProb(torch.nn.Module, BagelPipeline):",
        ),
        path=ROLLOUT,
    ),
    # A loop that does not carry what its layers make
    mutant(
        "latents under another name in the loop over layers",
        ("M5", "M8"),
        "149",
        loop("            context, output = self._checkpointed_call(layer, context, latents, layout)\n"),
        text(MODEL, "self.norm_moe_gen(latents)),)", "self.norm_moe_gen(output)),)"),
    ),
    mutant(
        "context under another name in the loop over layers",
        ("M5", "M8"),
        "149 134",
        loop("            text, latents = self._checkpointed_call(layer, context, latents, layout)\n"),
    ),
    mutant(
        "only the second result of a layer is taken",
        ("M5", "M8"),
        "149",
        loop("            latents = self._checkpointed_call(layer, context, latents, layout)[1]\n"),
    ),
    mutant(
        "results of a layer are collected and the last one is taken",
        ("M5", "M8"),
        "149",
        loop("            states.append(self._checkpointed_call(layer, context, latents, layout))\n"),
        text(MODEL, "        for layer in self.layers:\n", "        states = []\n        for layer in self.layers:\n"),
        text(MODEL, f"        {_OUT}", f"        context, latents = states[-1]\n        {_OUT}"),
    ),
    # A helper that gives a bare tensor back
    slip(
        "a method gives back a bare tensor",
        ("M5", 39),
        "108",
        (_OUT, "return self._velocity(latents)"),
        (
            _FROM,
            "    def _velocity(self, latents: Tensor) -> Tensor:\n"
            "        return self.llm2vae(self.norm_moe_gen(latents))\n\n" + _FROM,
        ),
    ),
    slip(
        "a method without annotations gives back a bare tensor, by name",
        ("M5", 39),
        "108",
        (_OUT, "velocity = self._velocity(latents)\n        return velocity"),
        (
            _FROM,
            "    def _velocity(self, latents):\n        latents = self.norm_moe_gen(latents)\n"
            "        return self.llm2vae(latents)\n\n" + _FROM,
        ),
    ),
    slip(
        "a function gives back a bare tensor",
        ("M5", 39),
        "108",
        (_OUT, "return _projected(self.llm2vae, self.norm_moe_gen(latents))"),
        (
            f"{_CLASS}\n",
            f"def _projected(head: nn.Module, latents: Tensor) -> Tensor:\n    return head(latents)\n\n\n{_CLASS}\n",
        ),
    ),
    # Weights under the names of training
    slip("weights are saved under the module's names", (21, "M6"), "153", (_TABLES, "for name, tensor in base}")),
    slip(
        "weights are saved under the module's names, as a dictionary of pairs",
        (21, "M6"),
        "153",
        ("state = {name: tensor.contiguous() " + _TABLES, "state = dict(base)"),
    ),
    slip(
        "names are taken to the training side once more when they are saved",
        (21, "M6"),
        "153",
        (_TABLES, "for name, tensor in ((to_training_key(key), value) for key, value in base)}"),
    ),
    # Results that nothing keeps
    slip("the timestep is added by add and not kept", ("M7",), "148", (_TIME, f"latents.add({_EMBEDDED})")),
    slip(
        "the timestep is added by torch.add and not kept", ("M7",), "148", (_TIME, f"torch.add(latents, {_EMBEDDED})")
    ),
    slip("the timestep is compared with", ("M7",), "148", (_TIME, _TIME.replace(" = ", " == ", 1))),
    slip("the timestep is added to a copy", ("M7",), "148", (_TIME, f"latents.clone().add_({_EMBEDDED})")),
    slip(
        "the end token is taken off a text that nobody keeps",
        ("R5", 31),
        "148",
        ('.removesuffix("<|im_end|>").strip()\n', '.strip()\n        text.removesuffix("<|im_end|>")\n'),
        path=ROLLOUT,
    ),
    # Masks as numbers, turned round, on the wrong side
    slip("the mask in the queries' type", ("M8", 9), "117", (_ATTENDED, _ATTENDED[:-1] + ".to(q.dtype))")),
    slip("the mask as float at attention", ("M8", 9), "117", (_ATTENDED, _ATTENDED[:-1] + ".float())")),
    slip("the mask as float where it is kept", ("M8", 9), "117", (_PAD, _PAD + ".to(torch.float32)")),
    slip("the mask turned round at attention", ("M8", 8), "117", (_ATTENDED, "attn_mask=~key_mask[:, None, None, :])")),
    slip(
        "the mask extended in front",
        ("M8", 8),
        "117",
        (_PAD, _PAD.replace("(0, 2 + latent_length)", "(2 + latent_length, 0)")),
    ),
    slip(
        "the mask extended in front by ones",
        ("M8", 8),
        "117",
        (_PAD, "torch.cat((text_mask.new_ones(text_mask.shape[0], 2 + latent_length), text_mask), dim=1)"),
    ),
    # Tensors on the host
    slip("markers are made without a device", ("M9", 38), "152", (_MARKER, _MARKER.replace(", device=device", ""))),
    slip(
        "positions of the text are made without a device",
        ("M9", 38),
        "152",
        (
            "torch.arange(text_length, dtype=torch.float32, device=device)",
            "torch.arange(text_length, dtype=torch.float32)",
        ),
    ),
    slip(
        "steps of the timestep features are made without a device",
        ("M9", 38),
        "152",
        (
            "steps = torch.arange(half, dtype=torch.float32, device=timestep.device)",
            "steps = torch.arange(half, dtype=torch.float32)",
        ),
    ),
    # Waiting for the device
    slip(
        "a range check of the noise level waits",
        (42,),
        "116",
        (
            "        features = timestep_features(timestep) if",
            "        low, high = timestep.aminmax()\n        if not 0.0 < float(low) <= float(high) <= 1.0:\n"
            '            raise ValueError("noise levels lie in (0, 1]")\n'
            "        features = timestep_features(timestep) if",
        ),
    ),
    slip(
        "a test of the largest position waits",
        (42,),
        "116",
        (
            "        features = timestep_features(timestep) if",
            "        last = latent_pos_ids.amax()\n        if last >= self.config.max_latent_size**2:\n"
            '            raise ValueError("the image is larger than the table")\n'
            "        features = timestep_features(timestep) if",
        ),
    ),
    # One module for two
    slip(
        "one feed-forward block under two names",
        ("M8", 23),
        "151",
        ("self.mlp_moe_gen = BagelMLP(config)", "self.mlp_moe_gen = self.mlp"),
    ),
    slip(
        "one norm under two names, by a local name",
        ("M8", 23),
        "151",
        (
            "        self.norm = RMSNorm(hidden, config.rms_norm_eps)\n        self.norm_moe_gen = RMSNorm(hidden, config.rms_norm_eps)\n",
            "        norm = RMSNorm(hidden, config.rms_norm_eps)\n        self.norm, self.norm_moe_gen = norm, norm\n",
        ),
    ),
    slip(
        "one layer times the number of layers",
        ("M8",),
        "151",
        (
            "nn.ModuleList(BagelMoTLayer(config) for _ in range(config.num_hidden_layers))",
            "nn.ModuleList([BagelMoTLayer(config)] * config.num_hidden_layers)",
        ),
    ),
    # A number in one of two twins; matrices in each other's place
    slip(
        "another epsilon in the last norm of the latents",
        ("M1", 36),
        "144",
        ("self.norm_moe_gen = RMSNorm(hidden, config.rms_norm_eps)", "self.norm_moe_gen = RMSNorm(hidden, 1e-5)"),
    ),
    slip(
        "matrices of a LoRA update unpacked in the other order",
        (18,),
        "129 322",
        ('.float() for side in "AB")', '.float() for side in "BA")'),
        path=ROLLOUT,
    ),
]
