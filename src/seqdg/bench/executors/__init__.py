"""Ways to run groups of trials. Each takes groups and yields, as they finish, a group with its records."""
