"""A run as one compact file, for publishing: JSON compressed with xz, which every command that reads runs can read."""
