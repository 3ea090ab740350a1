"""A tiny checkpoint of a pipeline whose package brings no builder: made on demand, proven by being run."""
