"""Mosaic, in a dozen small modules."""

from .net import MosaicNet
from .roll import MosaicPipeline
from .train import MosaicTraining

__all__ = ["MosaicNet", "MosaicPipeline", "MosaicTraining"]
