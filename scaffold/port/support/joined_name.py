"""Dotted names of modules."""


def joined_name(prefix: str, name: str) -> str:
    """``prefix.name``; the name alone where there is no prefix."""
    return f"{prefix}.{name}" if prefix else name
