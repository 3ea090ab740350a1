"""One module a section of the spec; adding a file adds a section."""
