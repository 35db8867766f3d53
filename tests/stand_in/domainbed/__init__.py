"""A small package of our own that keeps the interfaces of DomainBed to the letter, for tests without a checkout of it.

Names, signatures, entry points and files are those that seqdg relies on; the code and the numbers are not its.
"""
