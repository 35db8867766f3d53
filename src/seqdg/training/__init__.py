"""From a group of trials to their records, on one device."""
