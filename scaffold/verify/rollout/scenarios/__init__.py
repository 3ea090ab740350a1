"""One scenario a class, or a module: what it declares under ``CHECKS`` and how ``measure`` measures it."""
