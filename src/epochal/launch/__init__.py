"""Starts runs in other processes: supervised, in a local pool, from a queue, or on a cluster."""
