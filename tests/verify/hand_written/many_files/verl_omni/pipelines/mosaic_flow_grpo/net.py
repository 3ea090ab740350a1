"""The denoiser: text first, then one token for each square of the image."""

import torch
from torch import nn
from torch.nn import functional as F

from verl_omni.pipelines.non_diffusers_model_base import NonDiffusersModelBase

from .load import fill
from .place import Place
from .shape import Shape, shape_in
from .storey import Storey


class MosaicNet(NonDiffusersModelBase):
    _no_split_modules = ["Storey"]
    _supports_gradient_checkpointing = True

    def __init__(self, *, shape: Shape):
        super().__init__()
        self.shape = shape
        self.lexicon = nn.Embedding(shape.lexicon, shape.breadth)
        self.squares = nn.Embedding(shape.side * shape.side, shape.breadth)
        self.inward = nn.Linear(shape.grain, shape.breadth)
        self.hour = nn.Linear(48, shape.breadth)
        self.storeys = nn.ModuleList(Storey(shape) for _ in range(shape.storeys))
        self.outward = nn.Linear(shape.breadth, shape.grain)

    @classmethod
    def from_pretrained(cls, model_path, torch_dtype=torch.bfloat16, **kwargs):
        with torch.device("meta"):
            empty = cls(shape=shape_in(model_path))
        return fill(empty, model_path).to(torch_dtype)

    def forward(self, squares, hour, where, words=None, spoken=None):
        kind = self.inward.weight.dtype
        x = self.inward(squares.to(kind)) + self.squares(where) + self.hour(hour.to(kind))[:, None]
        count, mask = x.shape[1], None
        places = torch.zeros(x.shape[:2], device=x.device)
        if words is not None:
            length = spoken.sum(1, keepdim=True)
            text = torch.arange(words.shape[1], device=x.device)[None] - length
            places = torch.cat((text.expand(len(x), -1), places), 1)
            mask = F.pad(spoken, (0, count), value=True)[:, None, None]
            x = torch.cat((self.lexicon(words), x), 1)
        place = Place(places, mask, self.shape.pupil)
        for storey in self.storeys:
            x = self._checkpointed_call(storey, x, place)
        return (self.outward(x[:, -count:]),)
