"""A file each. `seqdg.build(name)` finds them by the names that they register."""
