"""How files, folders, documents and git are read: one way for each, bounded."""
