"""Rows of features: read from files, or extracted once from pictures and texts by a frozen backbone."""
