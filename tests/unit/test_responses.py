"""Writing objects as YAML."""

from typing import Any

import pytest
import yaml

from apiserver.serving.responses import _yaml_parts

LONG: list[Any] = [{"name": f"n{number}", "reasons": ["a", {"b": None}], "count": number} for number in range(120)]


@pytest.mark.parametrize(
    "tree",
    [
        pytest.param({"kind": "A", "apiVersion": "v1", "items": LONG, "metadata": {}}, id="a long list"),
        pytest.param({"items": LONG[:3], "b": [], "true": "no"}, id="short lists"),
        pytest.param({"lists": [[number] for number in range(60)], "texts": ["- x", "", "\n"] * 30}, id="odd items"),
    ],
)
def test_yaml_in_parts_is_yaml_as_a_whole(tree: dict[str, Any]) -> None:
    """Written in parts an object is, byte for byte, what it is when it is written as a whole."""
    assert "".join(_yaml_parts(tree)) == yaml.safe_dump(tree, sort_keys=True, allow_unicode=True)
