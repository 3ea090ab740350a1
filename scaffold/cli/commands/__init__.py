"""One module a command: the function of its name, and its place in the help as `ORDER`."""
