"""What users implement or write in a config: tasks, hooks, metrics, schedules, options."""
