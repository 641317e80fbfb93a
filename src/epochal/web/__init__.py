"""The server of `epochal serve`: a page and an API about the runs of a folder."""
