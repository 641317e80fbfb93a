"""Which folders are runs, attempts, processes, and readers that tolerate damage."""
