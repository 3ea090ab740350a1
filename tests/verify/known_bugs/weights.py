"""Configuration and weights on their way in and out."""

from __future__ import annotations

from known_bugs.bug import MODEL, Bug

BUGS = (
    Bug(
        None,
        "buffer that is not saved left on the meta device",
        (
            (
                MODEL,
                "        self.latent_pos_embed = PositionTable(",
                '        self.register_buffer("table", torch.arange(4), persistent=False)\n'
                "        self.latent_pos_embed = PositionTable(",
            ),
        ),
        ("loading",),
    ),
    Bug(
        3,
        "checkpoint loaded without strictness",
        (
            (MODEL, "        check_state(model.state_dict(), state, model_path)\n", ""),
            (MODEL, "strict=True, assign=True", "strict=False, assign=True"),
        ),
        ("loading",),
    ),
    Bug(
        4,
        "model built in memory before it is loaded",
        (
            (
                MODEL,
                '        with torch.device("meta"):\n            model = cls(config)\n',
                "        model = cls(config)\n",
            ),
            (MODEL, "strict=True, assign=True", "strict=True"),
        ),
        ("loading-memory",),
    ),
    Bug(
        22,
        "parameter that nothing fills",
        (
            (
                MODEL,
                "        self.norm = RMSNorm(hidden, config.rms_norm_eps)\n",
                "        self.norm = RMSNorm(hidden, config.rms_norm_eps)\n"
                "        self.spare_moe_gen = nn.Parameter(torch.ones(hidden))\n",
            ),
        ),
        ("trainable-parameters",),
    ),
    Bug(
        36,
        "configuration saved without a field",
        (
            (MODEL, "            rope_theta=_required(text", "            rope_theta=2 * _required(text"),
            (
                MODEL,
                "{_CONFIG_MARK: type(self).__name__, **asdict(self)}",
                'asdict(self) | {"llm_config": asdict(self)}',
            ),
        ),
        ("config-round-trip",),
        ("weights-round-trip", "loading", "loading-memory"),
    ),
    Bug(
        None,
        "weights saved in half precision",
        ((MODEL, "tensor.contiguous()", "tensor.half().float().contiguous()"),),
        ("weights-round-trip",),
    ),
)
