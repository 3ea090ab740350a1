"""Which weights of a checkpoint are an expert's."""


def expert_names(
    gate_proj_name: str, down_proj_name: str, up_proj_name: str, num_experts: int
) -> list[tuple[str, str, int, str]]:
    """Return rows of what stands for a parameter of all experts, what the checkpoint has, expert and part."""
    parts = (("w13_", gate_proj_name, "w1"), ("w2_", down_proj_name, "w2"), ("w13_", up_proj_name, "w3"))
    return [
        (f"experts.{whole}", f"experts.{expert}.{name}.", expert, part)
        for expert in range(num_experts)
        for whole, name, part in parts
    ]
