"""One module per peer: the same training, each as its own documentation teaches it."""
