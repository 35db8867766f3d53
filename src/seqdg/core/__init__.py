"""Algorithms as pure functions, the fold that makes them sequential, their settings and names."""
