"""One module a scenario: what it declares under ``CHECKS`` and how ``measure`` measures it."""
