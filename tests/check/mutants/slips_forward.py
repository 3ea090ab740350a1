"""Small slips in positions, masks and results of the forward pass."""

from mutants.edit import decorate, swap
from mutants.mutant import MODEL, Mutant, mutant

MODULE = "BagelForTraining"
FORWARD = f"{MODULE}.forward"
LOAD = f"{MODULE}.from_pretrained"
ATTENTION = "BagelAttention.forward"
LAYOUT = "Layout.__init__"
CALL = "context, latents = self._checkpointed_call(layer, context, latents, layout)"
FIRST = "first = text_mask.sum(dim=1, keepdim=True, dtype=torch.float32)"
KEYS = "self.key_mask = F.pad(text_mask, (0, 2 + latent_length), value=True)"


def slip(name: str, items: tuple, rules: str, within: str, old: str, new: str = "") -> Mutant:
    """Return a mutant with one expression or one run of statements changed."""
    return mutant(name, items, rules, swap(MODEL, within, old, new))


MUTANTS = [
    # Positions, masks, host
    slip(
        "longest text for all",
        (14, 1),
        "118 119",
        LAYOUT,
        FIRST,
        "first = text_mask.sum(dim=1, keepdim=True, dtype=torch.float32).max()",
    ),
    slip(
        "padded length for all",
        (1,),
        "119",
        LAYOUT,
        FIRST,
        "first = torch.full((text_mask.shape[0], 1), float(text_mask.shape[1]), device=device)",
    ),
    slip(
        "sum over the batch",
        (14, 1),
        "118 119",
        LAYOUT,
        FIRST,
        "first = text_mask.sum(dim=0, keepdim=True, dtype=torch.float32)",
    ),
    slip(
        "padding attended to",
        (8,),
        "117",
        LAYOUT,
        KEYS,
        "self.key_mask = F.pad(torch.ones_like(text_mask), (0, 2 + latent_length), value=True)",
    ),
    slip(
        "image keys hidden",
        (8,),
        "117",
        LAYOUT,
        KEYS,
        "self.key_mask = F.pad(text_mask, (0, 2 + latent_length), value=False)",
    ),
    slip(
        "mask upside down",
        (8,),
        "117",
        LAYOUT,
        KEYS,
        "self.key_mask = ~F.pad(text_mask, (0, 2 + latent_length), value=True)",
    ),
    slip(
        "mask not given to attention",
        (8,),
        "117",
        "attend",
        "F.scaled_dot_product_attention(q, k, v, attn_mask=key_mask[:, None, None, :])",
        "F.scaled_dot_product_attention(q, k, v)",
    ),
    slip(
        "latents attend without the mask",
        (8,),
        "117",
        ATTENTION,
        "self.o_proj_moe_gen(attend(q_latents, k, v, layout.key_mask))",
        "self.o_proj_moe_gen(attend(q_latents, k, v))",
    ),
    slip(
        "text length from the mask",
        (14, 42),
        "118 116",
        FORWARD,
        "Layout(text_length, text_attention_mask, latents.shape[1], self.config, device)",
        "Layout(int(text_attention_mask.sum()), text_attention_mask, latents.shape[1], self.config, device)",
    ),
    slip(
        "host decides about the mask",
        (42,),
        "116",
        LAYOUT,
        "text_length and text_mask is not None",
        "text_length and text_mask is not None and not text_mask.all()",
    ),
    slip(
        "tensor printed",
        (42,),
        "116",
        FORWARD,
        "text_length = ids[0].shape[1] if ids else 0",
        'text_length = ids[0].shape[1] if ids else 0\nprint(f"timestep {timestep.mean().item():.3f}")',
    ),
    slip(
        "ids over the host",
        (42,),
        "116",
        FORWARD,
        "self.embed_tokens(torch.cat(ids, dim=1))",
        "self.embed_tokens(torch.tensor(torch.cat(ids, dim=1).tolist(), device=device))",
    ),
    slip(
        "boolean selection of tokens",
        (42,),
        "116",
        FORWARD,
        "context = self.embed_tokens(torch.cat(ids, dim=1))",
        "context = self.embed_tokens(torch.cat(ids, dim=1))\nif text_attention_mask is not None:\n    kept = context[:, :text_length][text_attention_mask]",
    ),
    slip(
        "waits for the device",
        (42,),
        "116",
        FORWARD,
        "text_length = ids[0].shape[1] if ids else 0",
        "text_length = ids[0].shape[1] if ids else 0\ntorch.accelerator.synchronize()",
    ),
    slip("timestep rounded", (33,), "124", "timestep_features", "timestep.float()", "timestep.round().float()"),
    slip(
        "timestep a whole number in forward",
        (33,),
        "124",
        FORWARD,
        "timestep_features(timestep)",
        "timestep_features((timestep * 1000).int())",
    ),
    slip(
        "velocity without a tuple",
        (39,),
        "108",
        FORWARD,
        "(self.llm2vae(self.norm_moe_gen(latents)),)",
        "self.llm2vae(self.norm_moe_gen(latents))",
    ),
    slip(
        "velocity and context returned",
        (39,),
        "108",
        FORWARD,
        "(self.llm2vae(self.norm_moe_gen(latents)),)",
        "(self.llm2vae(self.norm_moe_gen(latents)), context)",
    ),
    slip(
        "velocity in a dictionary",
        (39,),
        "108",
        FORWARD,
        "(self.llm2vae(self.norm_moe_gen(latents)),)",
        '{"sample": self.llm2vae(self.norm_moe_gen(latents))}',
    ),
    slip(
        "velocity returned as None",
        (39,),
        "108",
        FORWARD,
        "return (self.llm2vae(self.norm_moe_gen(latents)),)",
        "velocity = self.llm2vae(self.norm_moe_gen(latents))",
    ),
    slip(
        "velocity without gradients",
        (19,),
        "125",
        FORWARD,
        "(self.llm2vae(self.norm_moe_gen(latents)),)",
        "(self.llm2vae(self.norm_moe_gen(latents)).detach(),)",
    ),
    mutant("forward under inference_mode", (19,), "125", decorate(MODEL, FORWARD, "torch.inference_mode()")),
    slip("layers under no_grad", (19,), "125", FORWARD, CALL, f"with torch.no_grad():\n    {CALL}"),
    slip("device as a word", (38,), "126", "open_checkpoint", '"cpu"', '"cuda"'),
    slip(
        "module moved to the first device",
        (38,),
        "126",
        LOAD,
        "model.to(torch_dtype)",
        'model.to("cuda:0", torch_dtype)',
    ),
    slip(
        "gate and up exchanged, once more",
        (23,),
        "128",
        "BagelMLP.forward",
        "F.silu(self.gate_proj(x)) * self.up_proj(x)",
        "F.silu(self.up_proj(x)) * self.gate_proj(x)",
    ),
    slip(
        "weight through its data",
        (34,),
        "120",
        "BagelMLP.forward",
        "self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))",
        "(F.silu(self.gate_proj(x)) * self.up_proj(x)) @ self.down_proj.weight.data.t()",
    ),
    slip(
        "weight through einsum",
        (34,),
        "120",
        "BagelMLP.forward",
        "self.up_proj(x)",
        'torch.einsum("bli,oi->blo", x, self.up_proj.weight)',
    ),
    slip(
        "weight of a layer in the module",
        (34,),
        "120",
        FORWARD,
        "self.llm2vae(self.norm_moe_gen(latents))",
        "F.linear(self.norm_moe_gen(latents), self.llm2vae.weight, self.llm2vae.bias)",
    ),
]
