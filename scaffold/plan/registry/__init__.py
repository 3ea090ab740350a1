"""The parts of ``verl_omni/pipelines/__init__.py``, each with its ``add`` and ``remove`` on libcst statements."""
