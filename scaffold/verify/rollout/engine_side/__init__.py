"""What runs inside the rollout environment: the engine, the training adapter, and the comparison of the two."""
