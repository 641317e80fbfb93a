"""Questions about runs: a small grammar, parsed and turned into bound SQL over the index."""
