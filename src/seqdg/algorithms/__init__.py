"""The algorithms, a file each. `seqdg.build(name)` makes one by the name that it registers."""
