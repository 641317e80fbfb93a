"""From a data loader to the microbatches of a step."""
