"""Offers at scale, small enough for the ordinary run: `python -m tests.bench.offers` measures the whole."""

import json
import subprocess
import sys

import pytest


@pytest.mark.timeout(300)
def test_costs() -> None:
    """A namespace costs little, all of them a kilobyte or so for each offer, and neither stops the rest."""
    command = [sys.executable, "-m", "tests.bench.offers", "--namespaces=200", "--classes=20"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    figures = json.loads(done.stdout)
    assert figures["one_again"] < 500, figures
    assert figures["event"] < 1000, figures
    assert figures["one_memory"] < 10, figures
    assert figures["all_memory"] < 14, figures
    assert figures["churn_memory"] < 40, figures
