"""LoRA: what it is injected into, what it learns, how it is kept."""

from __future__ import annotations

from known_bugs.bug import MODEL, ROLLOUT, Bug

BUGS = (
    Bug(
        11,
        "adapters switched off in the first layer only",
        (
            (
                MODEL,
                "    def add_adapter(self, adapter_config",
                "    def disable_adapters(self) -> None:\n"
                "        for module in self.layers[0].modules():\n"
                '            if hasattr(module, "enable_adapters"):\n'
                "                module.enable_adapters(False)\n\n"
                "    def add_adapter(self, adapter_config",
            ),
        ),
        ("lora-switch",),
    ),
    Bug(
        18,
        "LoRA target that no module has",
        (),
        ("lora-targets",),
        spec_edits=(
            ('    "q_proj_moe_gen",\n    "k_proj_moe_gen",', '    "q_projection_moe_gen",\n    "k_proj_moe_gen",'),
        ),
    ),
    Bug(
        19,
        "B cut off from the loss",
        ((MODEL, "up.weight, base.bias", "up.weight.detach(), base.bias"),),
        ("lora-learns",),
        ("fsdp2-gloo",),
    ),
    Bug(
        34,
        "weight read past LoRA",
        (
            (
                MODEL,
                "self.down_proj(F.silu(gate) * up)",
                "F.linear(F.silu(gate) * up, self.down_proj.weight)",
            ),
        ),
        ("lora-learns",),
        ("fsdp2-gloo",),
    ),
    Bug(
        None,
        "adapter that scales the base",
        (
            (
                MODEL,
                "        return out.addmm_(",
                "        return 1.001 * out.addmm_(",
            ),
        ),
        ("lora-starts-at-base",),
    ),
    Bug(
        None,
        "adapter whose weights are not loaded",
        ((MODEL, "matrix.copy_(given[name])", "pass"),),
        ("lora-save-load",),
    ),
    Bug(
        None,
        "exported adapter on every layer of its last names",
        (
            (MODEL, "        config.target_modules = self._endings_of(", "        self._endings_of("),
            (MODEL, "        if wrong:\n", "        if False:\n"),
            (
                MODEL,
                "            for name, matrix in own.items():\n",
                "            for name, matrix in {n: own[n] for n in given}.items():\n",
            ),
        ),
        ("lora-save-load",),
    ),
    Bug(
        None,
        "loaded adapter that does not train",
        (
            (MODEL, "config.inference_mode = False", "config.inference_mode = True"),
            (
                MODEL,
                "    def add_adapter(self, adapter_config",
                "    def set_adapter(self, adapter_name: str) -> None:\n"
                "        pass\n\n"
                "    def add_adapter(self, adapter_config",
            ),
        ),
        ("lora-save-load",),
    ),
    Bug(
        18,
        "LoRA scaled twice",
        ((MODEL, " * self.scaling[name],", " * self.scaling[name] ** 2,"),),
        ("lora-update",),
    ),
    Bug(
        18,
        "the rollout's hook folds no update",
        (
            (
                ROLLOUT,
                "        if modules and not super().load_weights(self._checkpoint_names(folded())):",
                "        if modules and not self._checkpoint_names(folded()):",
            ),
        ),
        ("lora-update",),
    ),
)
