"""How the numbers of each analysis are shown: a function from what the store has to a section of the report."""
