"""One module a section of the spec."""
