"""One contract a module: ``CHECK``, ``measure(training)``, and ``applies(variant)`` where not every variant has it."""
