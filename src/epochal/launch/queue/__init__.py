"""The queue: jobs of a project that wait for a worker, kept in a database."""
