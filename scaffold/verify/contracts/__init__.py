"""One module for each contract of level ``contract``, found by walking this folder.

Each has ``ID``, ``TITLE``, ``PITFALLS``, a ``LIMIT`` with the reason for its size where the contract is a number, and
``run(subject) -> Measured``. ``SECONDS``, ``MEGABYTES`` and ``DIFFUSERS`` change what ``catalogue`` assumes.
"""
