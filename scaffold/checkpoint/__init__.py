"""Reads what a checkpoint holds (names, shapes, dtypes, configs) from headers and indexes, never tensor data."""

from scaffold.checkpoint.fold import FoldedName, fold
from scaffold.checkpoint.headers import CheckpointFile, CheckpointHeaders, TensorHeader
from scaffold.checkpoint.manifest import manifest_text, read_manifest
from scaffold.checkpoint.read import read_checkpoint

__all__ = [
    "CheckpointFile",
    "CheckpointHeaders",
    "FoldedName",
    "TensorHeader",
    "fold",
    "manifest_text",
    "read_checkpoint",
    "read_manifest",
]
