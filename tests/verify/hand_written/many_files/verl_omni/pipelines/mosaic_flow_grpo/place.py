"""Where tokens stand, in an object: what wraps a layer leaves it as it is."""

from .turn import tables


class Place:
    def __init__(self, where, mask, pupil: int):
        self.tables = tables(where, pupil)
        self.mask = mask
