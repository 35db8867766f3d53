"""What others wrote: names that become files, sizes that no memory holds, and parsers with errors of their own."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager

from seqdg.base.messages import UsageError
from seqdg.base.system import measure_free_memory

LONGEST = 150  # bytes of a name, of the 255 that file systems take: an ending, and that of an unfinished file, follow
SHARE = 0.8  # of the free memory that what is read may take
SMALL = 2**26  # bytes that need no look at the memory


def make_file_name(name: str, marks: str = "+-_.", other: str = "_") -> str:
    """Return the name as that of one file, of letters, digits and marks: whoever chose it, no other folder is meant.

    marks: what else stays as it is.   other: what takes the place of all that does not.
    """
    safe = "".join(ch if ch.isalnum() or ch in marks else other for ch in name).strip(". ") or "_"
    try:
        short = os.fsencode(safe)[:LONGEST].decode(errors="ignore")
    except UnicodeEncodeError:  # the locale knows only ASCII
        short = safe.encode("ascii", errors="ignore")[:LONGEST].decode()
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:8]
    return safe if short == safe else f"{short}-{digest}"


def check_memory(needed: float, what: str, cure: str = "Use a part of it, or a machine with more memory.") -> None:
    """Raise a UsageError where something needs more memory than there is. It is asked before anything is read: a small
    file may unpack to more than a machine holds.

    needed: bytes that it takes at least.   what: needs them, at the start of the sentence.
    """
    free = measure_free_memory() if needed > SMALL else None
    if free is not None and needed > SHARE * free:
        raise UsageError(
            f"{what} needs at least {needed / 2**30:,.1f} GiB of memory, and {SHARE:.0%} of the {free / 2**30:,.1f} "
            f"GiB that are free may be taken. {cure}"
        )


@contextmanager
def refuse_broken(start: str, end: str = ".") -> Iterator[None]:
    """Raise a UsageError, `START (reason)END`, where the block raises anything: parsers of others have errors of their
    own for what no sound file holds."""
    try:
        yield
    except UsageError:
        raise
    except Exception as error:
        reason = (str(error).strip().splitlines() or [""])[0][:200] or type(error).__name__
        raise UsageError(f"{start} ({reason}){end}") from error
