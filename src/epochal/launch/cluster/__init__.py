"""Clusters: jobs that Ray or Slurm starts on other machines, and task files for other systems."""
