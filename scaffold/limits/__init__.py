"""What is bounded: values that a source is worked out to, steps, processor time, child processes."""
