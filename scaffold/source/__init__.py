"""The one reader of Python: modules, scopes, classes, values and the interpreter. Nothing that it reads is executed."""
