"""Sweeps of DomainBed and of its forks (SWAD, MIRO, SAGM, GGA) as run directories.

`reading` makes trainings of their files, `records` makes records of trainings, and `importing` stores these.
"""

from seqdg.interop.domainbed_sweep.importing import Imported, describe_import, import_sweep

__all__ = ["Imported", "describe_import", "import_sweep"]
