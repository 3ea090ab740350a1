"""How findings are printed: one module a format."""
