"""`python -m tokagnostic` to the command line."""

from tokagnostic.cli import main

if __name__ == "__main__":
    main()
