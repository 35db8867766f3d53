"""What everything else is made of: episodes, trees of weights, noise, errors, files."""
