"""Domains and how they are read."""
