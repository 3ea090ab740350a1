"""Base classes of the engine's and of diffusers' that bring loading and caching, and nothing that is computed."""

NAMES: tuple[str, ...] = ()
BASES = {
    "CachedTransformer": "nn.Module",
    "CFGParallelMixin": "",
    "CustomOp": "nn.Module",
    "ModelMixin": "nn.Module",
    "PeftAdapterMixin": "",
    "FromOriginalModelMixin": "",
}
