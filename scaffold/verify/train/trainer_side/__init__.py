"""What runs inside the processes of a training run: patches for what a CPU lacks, observers, deliberate mistakes."""
