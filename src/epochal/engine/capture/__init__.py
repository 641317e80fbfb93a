"""The step as a CUDA graph or compiled, tried before it is used."""
