"""The paper's analyses: each a function from a study to numbers that the store keeps and the report draws."""
