"""DomainBed: its classes in our runner, ours in its scripts. It is not on a package index: the user has a checkout."""
