"""``make_expert_params_mapping``: which weights of the checkpoint are an expert's."""

from __future__ import annotations

from scaffold.port.layer import Arguments, Built, Site, UnsupportedError

NAMES = ("make_expert_params_mapping", "fused_moe_make_expert_params_mapping")
# The model and spare experts say where they are placed, which one device has no need of.
PARAMETERS = ("model", "ckpt_gate_proj_name", "ckpt_down_proj_name", "ckpt_up_proj_name", "num_experts")


def build(arguments: Arguments, site: Site) -> Built:
    """Return the table of names.

    Raises:
        UnsupportedError: a name is not given.
    """
    bound = Arguments(
        arguments.positional,
        {name: text for name, text in arguments.keywords.items() if name != "num_redundant_experts"},
        arguments.name,
    ).bind(PARAMETERS)
    if not {*PARAMETERS[1:]} <= bound.keys():
        raise UnsupportedError("names of experts' weights that are not given")
    given = ", ".join(f"{name.removeprefix('ckpt_')}={bound[name]}" for name in PARAMETERS[1:])
    return Built(((None, f"{site.support('expert_names', 'expert_names')}({given})"),))
