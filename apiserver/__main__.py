"""`python -m apiserver`, and the console scripts `gpuclass-catalog` and `kubectl-gpuclasses`."""

import sys
from collections.abc import Sequence


def main() -> None:
    """Run the command line and leave with its exit code."""
    _leave(sys.argv[1:], plugin=False)


def kubectl_gpuclasses() -> None:
    """The same as `kubectl gpuclasses`: kubectl runs what is called kubectl-gpuclasses on the PATH."""
    _leave(sys.argv[1:], plugin=True)


def _leave(arguments: Sequence[str], *, plugin: bool) -> None:
    try:
        from apiserver.cli import run, run_plugin  # noqa: PLC0415 # a Ctrl-C while it is imported is no traceback

        sys.exit(run_plugin(arguments) if plugin else run(arguments))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
