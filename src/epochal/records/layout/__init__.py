"""Which folders are runs, attempts, processes and leases, and readers that tolerate damage."""
