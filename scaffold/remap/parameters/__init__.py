"""Names and shapes of a training module's parameters, from its source or from the module itself."""

from scaffold.remap.parameters.construction import parameters_of

__all__ = ["parameters_of"]
