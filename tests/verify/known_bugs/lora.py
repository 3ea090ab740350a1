"""LoRA: what it is injected into, what it learns, how it is kept."""

from __future__ import annotations

from known_bugs.bug import MODEL, Bug

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
        ((MODEL, "self.lora_B[name].weight.t()", "self.lora_B[name].weight.t().detach()"),),
        ("lora-learns",),
        ("fsdp2-gloo",),
    ),
    Bug(
        34,
        "weight read past LoRA",
        (
            (
                MODEL,
                "self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))",
                "F.linear(F.silu(self.gate_proj(x)) * self.up_proj(x), self.down_proj.weight)",
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
                "        return out.unflatten(0, x.shape[:-1])\n",
                "        return 1.001 * out.unflatten(0, x.shape[:-1])\n",
            ),
        ),
        ("lora-starts-at-base",),
    ),
    Bug(
        None,
        "adapter whose weights are not loaded",
        (
            (
                MODEL,
                "    def add_adapter(self, adapter_config",
                '    def load_lora_adapter(self, adapter_path, adapter_name="default"):\n'
                "        self.add_adapter(LoraConfig.from_pretrained(adapter_path), adapter_name)\n\n"
                "    def add_adapter(self, adapter_config",
            ),
        ),
        ("lora-save-load",),
    ),
    Bug(
        18,
        "LoRA scaled twice",
        ((MODEL, "alpha=self.scaling[name])", "alpha=self.scaling[name] ** 2)"),),
        ("lora-update",),
    ),
)
