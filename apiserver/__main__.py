"""`python -m apiserver` and the console script `gpuclass-catalog`."""

import sys

from apiserver.cli import run


def main() -> None:
    """Run the command line and leave with its exit code."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
