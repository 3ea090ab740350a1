"""The contracts of level ``contract``, found by walking this folder: a class each, or a module with one alone.

Each has ``ID``, ``TITLE``, ``PITFALLS``, a ``LIMIT`` with the reason for its size where the contract is a number, and
``run(subject) -> Measured``. ``SECONDS``, ``MEGABYTES`` and ``DIFFUSERS`` change what ``catalogue`` assumes.

A package with a ported denoiser is driven by what the real pipeline was recorded doing. ``run_recorded`` takes the
place of ``run`` there, where a module has it; ``NOT_RECORDED`` says why no recording answers the contract. ``ROLLED``
marks those that are about the rollout: of a hand-written package whose pipeline was recorded, about that recording.
"""
