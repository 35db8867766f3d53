"""Nets, written as ordinary modules."""
