"""Steps as CUDA graphs or compiled code, compared with eager steps before use."""
