"""Interfaces for users: tasks, hooks, metrics, schedules, and the options of a config."""
