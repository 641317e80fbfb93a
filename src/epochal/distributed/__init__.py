"""Several processes of one run: who they are, how they agree, and how a model is shared."""
