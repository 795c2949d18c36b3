"""Write the reference anew: `make docs`."""

import sys
from pathlib import Path
from typing import Final

from docs.reference.api import write_api
from docs.reference.flags import write_flags

HERE: Final = Path(__file__).parent


def pages() -> dict[str, str]:
    """File name to content."""
    return {"api.md": write_api(), "flags.md": write_flags()}


def main() -> int:
    """Write the pages."""
    for name, text in pages().items():
        (HERE / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
