"""A package whose denoiser is ported: its inputs are those that the real pipeline gave it, recorded before."""

from scaffold.verify.subject.ported.subject import PortedSubject

__all__ = ["PortedSubject"]
