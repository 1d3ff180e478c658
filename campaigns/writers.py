"""All that the campaigns disturb, in one list."""

from __future__ import annotations

import re
from pathlib import Path

from campaigns.deployments import deployment_operations, train_aside
from campaigns.exports import export_operations
from campaigns.operations import Operation, store_operations


def all_operations(folder: Path, only: str = "") -> list[Operation]:
    """Return the operations whose name matches a regular expression; ``folder`` gets a trained run if they need it."""
    operations = [*store_operations(), *export_operations(), *deployment_operations(folder)]
    chosen = [operation for operation in operations if re.search(only, operation.name)]
    if any(operation.of_trained for operation in chosen):
        train_aside(folder)
    return chosen
