"""`python -m seqdg.interop.domainbed train|sweep`"""

from __future__ import annotations

import sys

from seqdg.interop.domainbed.bridge import main

if __name__ == "__main__":
    main(sys.argv[1:])
