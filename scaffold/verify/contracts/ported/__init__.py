"""Contracts that ask a package with a ported denoiser otherwise: a module of a contract's own name takes its place.

Such a package is driven by what the real pipeline was recorded doing, so what these contracts vary is recorded, too.
"""
