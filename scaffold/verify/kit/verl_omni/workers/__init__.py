"""Stand-in for ``verl_omni.workers``: only ``config`` and the class that extends rollout workers."""
