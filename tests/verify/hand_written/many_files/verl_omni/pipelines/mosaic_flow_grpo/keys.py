"""Names in the released file."""

FILE = "denoiser/mosaic.safetensors"
ROOT = "mosaic.net."


def released(name: str) -> str:
    return ROOT + name
