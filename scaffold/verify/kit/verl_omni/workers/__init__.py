"""Stand-in for ``verl_omni.workers``: only ``config``."""
