"""`ui`: the page, shown to the person who asked for it."""

import sys
import threading
import webbrowser

from apiserver.ui import PATH


def show_page(url: str, *, open_browser: bool) -> None:
    """Print where the page is, and open it in the person's browser if there is one.

    Args:
        url: of the server.
        open_browser: whether to.
    """
    page = url + PATH
    sys.stdout.write(f"{page}\n")
    sys.stdout.flush()
    if open_browser:
        # In a thread of its own: some browsers are waited for, and the page could not be answered meanwhile.
        threading.Thread(target=_open, args=(page,), name="browser", daemon=True).start()


def _open(page: str) -> None:
    try:
        is_open = webbrowser.open(page)
    except webbrowser.Error:
        is_open = False
    if not is_open:
        sys.stderr.write(f"gpuclass-catalog: no browser could be opened; open {page} in one\n")
