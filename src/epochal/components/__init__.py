"""What configs name: data loading, metrics, learning-rate schedules."""
