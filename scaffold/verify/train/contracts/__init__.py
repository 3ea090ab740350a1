"""One contract a class, or a module: ``CHECK``, ``measure(training)``, ``applies(variant)`` where not all have it."""
