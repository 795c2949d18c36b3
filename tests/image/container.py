"""A program of an unpacked image as a cluster's kubelet starts it: another user, no rights, and nothing to write to.

Not by `buildah run`: its chroot isolation has no read-only root. The image alone is what the program sees, without
even /tmp, /proc and /dev, so that the root of its mount namespace is all there is.
"""

import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

START_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Container:
    """The root file system of an image and its configuration.

    Attributes:
        root: where it is unpacked.
        environment: of its programs, as NAME=VALUE.
        user: whom its programs run as, as UID:GID.
    """

    root: Path
    environment: Sequence[str]
    user: str

    def command(self, *arguments: str, user: str = "") -> list[str]:
        """What runs a program in it, in a mount namespace of its own whose root is read-only."""
        read_only = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
        into = ["chroot", f"--userspec={user or self.user}", "--groups=", str(self.root), *arguments]
        setpriv = ["setpriv", "--no-new-privs", "env", "--ignore-environment", *self.environment]
        unshare = ["unshare", "--mount", "--propagation=private"]
        return [*unshare, "sh", "-c", read_only, str(self.root), *setpriv, *into]

    def run(self, *arguments: str, user: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a program in it to its end."""
        command = self.command(*arguments, user=user)
        return subprocess.run(command, capture_output=True, text=True, check=check, timeout=START_SECONDS)

    @contextmanager
    def serving(self, *arguments: str, stdin: Path) -> Iterator[tuple[str, int]]:
        """Run a server in it; its URL, and the id of its process."""
        with stdin.open() as file:
            process = subprocess.Popen(self.command(*arguments), stdin=file, stderr=subprocess.PIPE, text=True)
        try:
            assert process.stderr is not None
            log = []
            for line in process.stderr:
                log.append(line)
                found = re.search(r"serving at (\S+)", line)
                if found:
                    yield found[1], process.pid
                    return
            raise AssertionError(f"the server ended before it served: {log}")
        finally:
            process.terminate()
            try:
                process.communicate(timeout=START_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
