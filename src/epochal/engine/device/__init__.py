"""Placement, number formats, memory, seeds and time on a device."""
