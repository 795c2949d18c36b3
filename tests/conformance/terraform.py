"""Terraform with the Kubernetes provider: the example configuration, planned, applied, and planned again."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.cluster.binaries import Module, find_program
from tests.cluster.catalog import MANIFESTS
from tests.cluster.client import Json
from tests.conformance.checks import Check, SkippedError, require, require_contains, require_equal
from tests.conformance.openapi import wait_until_merged
from tests.conformance.stage import FREE, Stage

MODULE: Final = Module("terraform")
PROVIDER: Final = "terraform-provider-kubernetes"
EXAMPLE: Final = MANIFESTS / "examples" / "terraform"
TIMEOUT_SECONDS: Final = 120
CHANGES: Final = 2
"""What `plan -detailed-exitcode` answers when something differs."""


def find_provider(announce: Callable[[str], None]) -> Path:
    """The provider, built first if it is not there, which takes minutes.

    Raises:
        UnavailableError: it cannot be built.
    """
    return find_program(PROVIDER, MODULE, f"github.com/hashicorp/{PROVIDER}", announce)


@dataclass(frozen=True, slots=True)
class Terraform:
    """Terraform, or OpenTofu, in a copy of the example."""

    program: str
    directory: Path
    environment: dict[str, str]

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """Run it and return what it prints.

        Raises:
            AssertionError: it did not end with the code.
        """
        done = subprocess.run(
            [self.program, *arguments],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
            input="",
        )
        require_equal(done.returncode, code, f"terraform {arguments[0]}: {done.stdout[-400:]}{done.stderr[-1200:]}")
        return done.stdout


def _prepare(stage: Stage) -> Terraform:
    program = shutil.which("terraform") or shutil.which("tofu")
    if program is None:
        raise SkippedError("this machine has neither terraform nor tofu")
    provider = find_provider(lambda _: None)
    directory = stage.scratch("terraform")
    for path in EXAMPLE.glob("*.tf"):
        shutil.copy(path, directory)
    settings = directory / "settings.tfrc"
    override = f'dev_overrides {{ "hashicorp/kubernetes" = "{provider.parent}" }}'
    settings.write_text(f"provider_installation {{\n  {override}\n  direct {{}}\n}}\n")
    environment = {
        **os.environ,
        "TF_CLI_CONFIG_FILE": str(settings),
        "TF_VAR_kubeconfig": str(stage.control_plane.kubeconfig),
        "TF_VAR_gpu_class": "l40s",
        "CHECKPOINT_DISABLE": "1",
        "TF_IN_AUTOMATION": "1",
    }
    return Terraform(program, directory, environment)


def _plan(stage: Stage) -> None:
    """Figures arrive as numbers, selected classes by name, and a second plan differs in nothing."""
    terraform = _prepare(stage)
    wait_until_merged(stage)
    terraform("plan", "-input=false", "-no-color", "-out=first.plan", "-detailed-exitcode", code=CHANGES)
    planned: Json = json.loads(terraform("show", "-json", "first.plan"))
    outputs = {name: each["value"] for name, each in planned["planned_values"]["outputs"].items()}
    require_equal(outputs["free"], FREE["l40s"], "the output free")
    require(isinstance(outputs["free"], int), "free is no number")
    require_equal(outputs["offered"], {"l40s": 8}, "the output offered")
    _require_typed(planned)
    terraform("apply", "-input=false", "-no-color", "first.plan")
    unchanged = terraform("plan", "-input=false", "-no-color", "-detailed-exitcode")
    require_contains(unchanged, "No changes", "the second plan")
    with stage.sold("terraformed", 1):
        changed = terraform("plan", "-input=false", "-no-color", "-detailed-exitcode", code=CHANGES)
        require_contains(changed, "free    = 8 -> 7", "the plan after a sale")


def _require_typed(planned: Json) -> None:
    """The attributes have the types of our schema, down to the leaves."""
    resources = planned["prior_state"]["values"]["root_module"]["resources"]
    item = next(each["values"]["object"] for each in resources if each["type"] == "kubernetes_resource")
    status = item["status"]
    require(isinstance(status["free"], int), "status.free is no number")
    require(status["offered"] is True, "status.offered is no boolean")
    require_equal(status["sharesWith"], [], "status.sharesWith")
    require_equal(item["spec"]["memory"], "48Gi", "spec.memory")
    require_equal(item["metadata"]["labels"], {"tier": "gold"}, "metadata.labels")


CHECKS: Final = (Check("terraform plan, apply, plan", _plan),)
