"""The engine's context of a forward pass: there is none outside the engine.

What a pipeline hands over in it, such as a reference image, is then missing: the port lists where it was asked. What
the method that predicts reads itself becomes an argument of that instead.
"""

CONTEXT, ASKED = "get_forward_context", "is_forward_context_available"

CALLS = {
    ASKED: "False",
    "get_sp_shard_original_seq_len": "None",
    "get_current_diffusion_config_or_none": "None",
}
ASSUMED = (ASKED,)
