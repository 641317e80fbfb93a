"""Hooks that come with epochal: what people see, what is recorded, when to stop."""
