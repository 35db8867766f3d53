"""`python -m seqdg`: the command line."""

from seqdg.cli import main

if __name__ == "__main__":
    main()
