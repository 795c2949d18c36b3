"""`python -m tests.fuzz [SECONDS [SEED]]`: attack a server of the example snapshot, and say what came of it."""

import sys

from tests.fuzz import run


def main() -> int:
    """Attack, report, and return 1 if there were faults."""
    seconds, seed = (*map(float, sys.argv[1:3]), 30, 1)[:2]
    result = run(seconds, int(seed))
    before, after = result.memory
    for fault in result.faults:
        sys.stdout.write(f"{fault}\n")
    codes = ", ".join(f"{code}: {times}" for code, times in sorted(result.codes.items()))
    memory = f"{before >> 20} to {after >> 20} MiB"
    sys.stdout.write(f"{result.attempts} attempts, {len(result.faults)} faults; {memory}; {codes}\n")
    return 0 if result.passed else 1


if __name__ == "__main__":
    sys.exit(main())
