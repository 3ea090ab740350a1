"""Plain counterparts of the engine's layers: a port takes the text of those that it needs; nothing here is imported."""
