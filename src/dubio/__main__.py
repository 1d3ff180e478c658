"""``python -m dubio``: the same as the command ``dubio``."""

from dubio.cli.app import main

if __name__ == "__main__":
    main()
