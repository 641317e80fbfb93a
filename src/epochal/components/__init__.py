"""Built-in components: data, losses, metrics, schedules, averages and layers."""
