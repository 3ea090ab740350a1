"""The training module: what it is, what it declares, how its forward runs the layers."""

from mutants.edit import add, bases, decorate, line, rename, swap
from mutants.mutant import MODEL, mutant

MODULE = "BagelForTraining"
FORWARD = f"{MODULE}.forward"
LAYER_CALL = "self._checkpointed_call(layer, context, latents, layout)"
RETURN = "return (self.llm2vae(self.norm_moe_gen(latents)),)"


def layers(code: str):
    """Return the edit that gives the loop over the layers another body."""
    loop = f"for layer in self.layers:\n    context, latents = {LAYER_CALL}"
    return line(MODEL, FORWARD, loop, code)


def returned(code: str):
    """Return the edit that ends forward differently."""
    return line(MODEL, FORWARD, RETURN, code)


MUTANTS = [
    # Base class
    mutant("plain nn.Module", ("M2",), "101", bases(MODEL, MODULE, "nn.Module")),
    mutant(
        "the base of diffusers",
        ("M2",),
        "101",
        bases(MODEL, MODULE, "ModelMixin", "ConfigMixin"),
        add(MODEL, "", "from diffusers import ConfigMixin, ModelMixin", first=True),
    ),
    mutant("no base at all", ("M2",), "101", bases(MODEL, MODULE)),
    mutant(
        "transformers' base",
        ("M2",),
        "101",
        bases(MODEL, MODULE, "PreTrainedModel"),
        add(MODEL, "", "from transformers import PreTrainedModel", first=True),
    ),
    # Classes that are not split
    mutant("no _no_split_modules", ("M3",), "102", line(MODEL, MODULE, '_no_split_modules = ["BagelMoTLayer"]')),
    mutant("empty _no_split_modules", ("M3",), "102 103", swap(MODEL, MODULE, '["BagelMoTLayer"]', "[]")),
    mutant(
        "layer class of the language model",
        ("M3", 32),
        "103",
        swap(MODEL, MODULE, '["BagelMoTLayer"]', '["Qwen2DecoderLayer"]'),
    ),
    mutant(
        "layer class renamed, its name in the list not",
        ("M3", 32),
        "103",
        rename(MODEL, "", "BagelMoTLayer", "BagelDecoderLayer"),
    ),
    mutant(
        "a typing error in the layer's name",
        ("M3", 32),
        "103",
        swap(MODEL, MODULE, '["BagelMoTLayer"]', '["BagelMotLayer"]'),
    ),
    mutant(
        "one part of the layer instead of the layer",
        ("M3",),
        "103",
        swap(MODEL, MODULE, '["BagelMoTLayer"]', '["BagelMLP"]'),
    ),
    mutant(
        "_no_split_modules misspelt", ("M3",), "102", rename(MODEL, MODULE, "_no_split_modules", "_no_split_module")
    ),
    # Gradient checkpointing
    mutant(
        "checkpointing not declared", ("M4",), "104", line(MODEL, MODULE, "_supports_gradient_checkpointing = True")
    ),
    mutant(
        "checkpointing declared as missing",
        ("M4",),
        "104",
        line(MODEL, MODULE, "_supports_gradient_checkpointing = True", "_supports_gradient_checkpointing = False"),
    ),
    mutant(
        "flag without its underscore",
        ("M4",),
        "104",
        rename(MODEL, MODULE, "_supports_gradient_checkpointing", "supports_gradient_checkpointing"),
    ),
    mutant(
        "layers called directly",
        ("M5", 10),
        "105",
        layers("for layer in self.layers:\n    context, latents = layer(context, latents, layout)"),
    ),
    mutant(
        "checkpointing written and never called",
        ("M5", 10),
        "105",
        layers("for layer in self.layers:\n    context, latents = layer(context, latents, layout)"),
        add(
            MODEL,
            MODULE,
            """
def _run(self, layer, context, latents, layout):
    return self._checkpointed_call(layer, context, latents, layout)
""",
        ),
    ),
    mutant(
        "torch's checkpoint, re-entrance left open",
        ("M5", 10),
        "105 106 107",
        layers("for layer in self.layers:\n    context, latents = checkpoint(layer, context, latents, layout)"),
        add(MODEL, "", "from torch.utils.checkpoint import checkpoint", first=True),
    ),
    mutant(
        "torch's checkpoint, also without gradients",
        ("M5", 10),
        "105 107",
        layers("""
for layer in self.layers:
    context, latents = torch.utils.checkpoint.checkpoint(layer, context, latents, layout, use_reentrant=False)
"""),
    ),
    mutant("forward without gradients", (10,), "125", decorate(MODEL, FORWARD, "torch.no_grad()")),
    mutant(
        "layers under inference mode",
        (10,),
        "125",
        layers(f"with torch.inference_mode():\n    for layer in self.layers:\n        context, latents = {LAYER_CALL}"),
    ),
    mutant(
        "latents detached between the layers",
        (10,),
        "125",
        layers(f"for layer in self.layers:\n    context, latents = {LAYER_CALL}\n    latents = latents.detach()"),
    ),
    # Result
    mutant("a tensor returned", (39,), "108", returned("return self.llm2vae(self.norm_moe_gen(latents))")),
    mutant("a list returned", (39,), "108", returned("return [self.llm2vae(self.norm_moe_gen(latents))]")),
    mutant("two values returned", (39,), "108", returned("return self.llm2vae(self.norm_moe_gen(latents)), latents")),
    mutant(
        "a dictionary returned", (39,), "108", returned('return {"sample": self.llm2vae(self.norm_moe_gen(latents))}')
    ),
    mutant(
        "a tensor returned by way of a variable",
        (39,),
        "108",
        returned("velocity = self.llm2vae(self.norm_moe_gen(latents))\nreturn velocity"),
    ),
    # Waiting for the device
    mutant(
        "padding asked for on the host",
        (42,),
        "116",
        swap(
            MODEL,
            "Layout.__init__",
            "text_length and text_mask is not None",
            "text_length and text_mask is not None and not bool(text_mask.all())",
        ),
    ),
    mutant(
        "longest text with item()",
        (42,),
        "116 118",
        line(
            MODEL,
            "Layout.__init__",
            "text_mask = text_mask.to(torch.bool)",
            "text_mask = text_mask.to(torch.bool)\nlongest = text_mask.sum(dim=1).max().item()\n"
            "text_mask = text_mask[:, :longest]",
        ),
    ),
    mutant(
        "lengths as a list",
        (42,),
        "116",
        line(
            MODEL,
            FORWARD,
            "layout = Layout(text_length, text_attention_mask, latents.shape[1], self.config, device)",
            "lengths = None if text_attention_mask is None else text_attention_mask.sum(1).tolist()\n"
            "layout = Layout(text_length, text_attention_mask, latents.shape[1], self.config, device)\n"
            "layout.lengths = lengths",
        ),
    ),
    mutant(
        "real tokens picked with a boolean index",
        (42,),
        "116",
        line(
            MODEL,
            "BagelAttention.forward",
            "v = torch.cat((v_context, v_latents), dim=1)",
            "v = torch.cat((v_context, v_latents), dim=1)\n"
            "if layout.key_mask is not None:\n    v[~layout.key_mask] = 0.0",
        ),
    ),
    mutant(
        "positions with nonzero()",
        (42,),
        "116",
        line(
            MODEL,
            FORWARD,
            "context = self.embed_tokens(torch.cat(ids, dim=1))",
            "context = self.embed_tokens(torch.cat(ids, dim=1))\n"
            "if text_attention_mask is not None:\n    real = text_attention_mask.nonzero(as_tuple=True)\n"
            "    context[real] = context[real] + 0.0",
        ),
    ),
    # Devices
    mutant(
        "markers made on cuda",
        (38,),
        "126",
        swap(
            MODEL,
            FORWARD,
            "torch.full((batch, 1), marker, device=device)",
            'torch.full((batch, 1), marker, device="cuda")',
        ),
    ),
    mutant(
        "tables moved with .cuda()",
        (38,),
        "126",
        line(
            MODEL,
            "rotary_tables",
            "return angles.cos(), angles.sin()",
            "return angles.cos().cuda(), angles.sin().cuda()",
        ),
    ),
    mutant(
        "checkpoint mapped to cuda:0",
        (38,),
        "126",
        swap(
            MODEL,
            "open_checkpoint",
            'safe_open(path, framework="pt", device="cpu")',
            'safe_open(path, framework="pt", device="cuda:0")',
        ),
    ),
]
