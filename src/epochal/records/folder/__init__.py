"""Write and read the folder of one run."""
