"""What is asked of a pipeline: a module has ``KEYS``, in the order of the report, and ``answers(program)``."""
