"""Learners that are no neural nets, each in the file of its name, imported when it is first asked for."""
