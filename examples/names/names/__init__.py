"""Names of persons and places in sentences: data, outputs and scores as pipes of a config."""
