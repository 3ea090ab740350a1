"""The part of ``DiffusionModelConfig`` that adapters read, recording the names they read."""

from __future__ import annotations

from typing import Any


class Settings:
    """Attributes and items, undeclared ones missing as they are in the engine's own configuration.

    Args:
        values: what is set.
        asked: names that were read, set or not, are added here.
    """

    def __init__(self, values: dict[str, Any], asked: set[str] | None = None) -> None:
        self.__dict__.update(values)
        self.__dict__["_asked"] = asked if asked is not None else set()

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_") and name != "get":
            object.__getattribute__(self, "__dict__")["_asked"].add(name)
        return object.__getattribute__(self, name)

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def __contains__(self, name: object) -> bool:
        return name in self.__dict__

    def get(self, name: str, default: Any = None) -> Any:
        """The setting, or ``default``."""
        return getattr(self, name, default)
