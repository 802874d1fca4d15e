"""`python -m fuser` is the command `fuserc`."""

from fuser.cli import main

if __name__ == "__main__":
    main()
