"""The machine, its mounts and the code repository."""
