"""Sizes, as ``hparams.json`` beside the weights has them."""

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Shape:
    breadth: int
    storeys: int
    eyes: int
    ears: int
    swell: int
    lexicon: int
    side: int
    grain: int = 6
    floor: float = 1e-6

    @property
    def pupil(self) -> int:
        return self.breadth // self.eyes


def shape_in(folder: str) -> Shape:
    return Shape(**json.loads((Path(folder) / "denoiser" / "hparams.json").read_text()))
