"""Events: which listeners are called, and what is due between steps."""
