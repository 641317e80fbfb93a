"""From microbatches to one update of the weights."""
