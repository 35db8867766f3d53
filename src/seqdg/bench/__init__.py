"""From a benchmark and a choice to trials, and from trials to records."""
