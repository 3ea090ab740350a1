from torch import nn
from torch.nn import functional as F

from .shape import Shape
from .turn import turned


class Look(nn.Module):
    """Attention with fewer ears than eyes."""

    def __init__(self, shape: Shape):
        super().__init__()
        if shape.eyes % shape.ears:
            raise ValueError("eyes must be a multiple of ears")
        self.shape = shape
        self.ask = nn.Linear(shape.breadth, shape.eyes * shape.pupil)
        self.hear = nn.Linear(shape.breadth, shape.ears * shape.pupil)
        self.take = nn.Linear(shape.breadth, shape.ears * shape.pupil)
        self.give = nn.Linear(shape.eyes * shape.pupil, shape.breadth, bias=False)

    def forward(self, x, place):
        q, k, v = (f(x).unflatten(-1, (-1, self.shape.pupil)).transpose(1, 2) for f in (self.ask, self.hear, self.take))
        q, k = turned(q, *place.tables), turned(k, *place.tables)
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=place.mask, enable_gqa=True)
        return self.give(seen.transpose(1, 2).flatten(2))
