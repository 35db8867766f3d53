"""What everything else is built on: episodes, trees of weights, noise, errors, files, words.

Import its modules by name. This file imports none of them, because errors, files and words are also used where torch
is not loaded.
"""
