"""From a user's own rows, labels and domains to a model."""
