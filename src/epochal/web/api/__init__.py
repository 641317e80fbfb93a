"""What answers the requests: one module per page or part of one."""
