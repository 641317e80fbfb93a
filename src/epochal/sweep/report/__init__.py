"""The report at the end of a sweep: one HTML page and one picture of the same figures."""
