from torch import nn
from torch.nn import functional as F

from .look import Look
from .norm import Level
from .shape import Shape


class Storey(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.before, self.between = Level(shape.breadth, shape.floor), Level(shape.breadth, shape.floor)
        self.look = Look(shape)
        self.wide = nn.Linear(shape.breadth, shape.swell * shape.breadth)
        self.narrow = nn.Linear(shape.swell * shape.breadth, shape.breadth)

    def forward(self, x, place):
        x = x + self.look(self.before(x), place)
        return x + self.narrow(F.silu(self.wide(self.between(x))))
