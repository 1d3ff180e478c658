"""The command ``dubio``, also as ``python -m dubio``."""

from __future__ import annotations

import sys

INTERRUPTED = 130


def main() -> None:
    """Run the command line; an interrupt while it is being loaded shows no traceback."""
    try:
        from dubio.cli.app import main as run
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        sys.exit(INTERRUPTED)
    run()


if __name__ == "__main__":
    main()
