"""Which hook is called when."""
