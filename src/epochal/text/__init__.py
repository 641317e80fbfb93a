"""Formatting, escaping, command lines and interrupts, for all layers above."""
