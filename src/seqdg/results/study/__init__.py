"""Studies: what is run to answer questions that were fixed beforehand, and the answers."""
