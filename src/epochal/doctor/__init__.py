"""The checks of ``epochal doctor``: machine, storage, and crash tests of checkpoints."""
