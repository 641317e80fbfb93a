"""Numbers, terminals and interrupts for the layers above."""
