"""`make pictures`: the page of the example snapshot as pictures in docs/, as a browser shows it."""

import asyncio
from pathlib import Path

from tests.http.running import running
from tests.page.chromium import Tab, find_chromium, opened, started

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "manifests" / "examples" / "snapshot.yaml"
DOCS = ROOT / "docs"
OPEN = "l40s-24c"
WIDTHS = (1280, 390)
SCHEMES = ("light", "dark")


async def draw(tab: Tab, url: str, *, width: int, scheme: str) -> bytes:
    """The page with the nodes of one class open."""
    await tab.show_as(width=width, features={"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"})
    await tab.open(f"{url}/ui/#{OPEN}")
    await tab.wait("document.querySelectorAll('tbody tr').length > 0")
    await tab.run("document.activeElement.blur(); scrollTo(0, 0)")
    return await tab.picture()


async def main() -> None:
    """Draw all of them."""
    with started(find_chromium()) as devtools:
        async with running("--snapshot", EXAMPLE, "--insecure-port", "0") as server, opened(devtools) as tab:
            for width in WIDTHS:
                for scheme in SCHEMES:
                    file = DOCS / f"page-{width}-{scheme}.png"
                    file.write_bytes(await draw(tab, server.url, width=width, scheme=scheme))
                    print(f"{file.relative_to(ROOT)}: {file.stat().st_size / 1000:.0f} kB")  # noqa: T201 # that it is done


if __name__ == "__main__":
    asyncio.run(main())
