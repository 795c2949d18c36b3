"""Throwing what no client would send at the HTTP surface of the server.

`run(seconds, seed)` attacks a server with requests made from our own OpenAPI document and with raw bytes, and judges
what comes back; `python -m tests.fuzz` does so from the command line.
"""

from tests.fuzz.running import Result, Target, run

__all__ = ["Result", "Target", "run"]
