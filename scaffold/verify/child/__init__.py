"""What runs in child processes: the host that imports a package, and the contracts it forks."""
