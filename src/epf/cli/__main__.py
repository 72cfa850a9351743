"""`python -m epf.cli` runs the `epf` command."""

from epf.cli import main

if __name__ == "__main__":  # not in the processes that a local cluster starts
    main()
