"""One optimizer step: forward, backward, and the update of the weights."""
