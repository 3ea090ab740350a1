"""Questions about a pipeline: each module has ``KEYS``, in the order of the report, and ``answers(program)``."""
