"""Resources of a job, as ``--resources cpu=2,gpu=0.5,memory=4GB`` names them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from dubio.core.errors import UserError
from dubio.core.unpacking import parse_size

RAY_NAMES = {"cpu": "CPU", "gpu": "GPU", "memory": "memory"}
"""The resources that every cluster may have, and Ray's names of them; others are a cluster's own."""

DEFAULT_RESOURCES: Mapping[str, float] = {"cpu": 1.0}

EXAMPLE = "cpu=2,gpu=0.5,memory=4GB"

SMALLEST = 0.0001
"""Ray counts resources in this unit."""


def parse_resources(text: str | None) -> dict[str, float]:
    """Return the resources that a text names; memory in bytes.

    Raises:
        UserError: Naming the part that cannot be understood.
    """
    resources: dict[str, float] = {}
    if text is not None and not text.strip(" ,"):
        raise UserError(f"--resources must be such as {EXAMPLE}; given {text!r}.")
    for assignment in filter(None, (text or "").split(",")):
        name, sign, value = (piece.strip() for piece in assignment.partition("="))
        name = name.lower() if name.lower() in RAY_NAMES else name
        if not sign or not name:
            raise UserError(f"--resources must be such as {EXAMPLE}; given {assignment!r}.")
        if name in resources:
            raise UserError(f"--resources names {name!r} twice.")
        resources[name] = _amount(name, value)
    return resources


def _amount(name: str, text: str) -> float:
    if name == "memory":
        return float(parse_size(text, "--resources: memory"))
    if not re.fullmatch(r"[0-9]{1,18}(?:\.[0-9]{0,9})?", text):
        raise UserError(f"--resources: {name} must be a positive number in digits, such as 2 or 0.5; given {text!r}.")
    amount = float(text)
    if amount < SMALLEST and (amount or name != "gpu"):
        raise UserError(f"--resources: {name} must be at least {SMALLEST}; given {text!r}.")
    if amount > 1 and amount != math.floor(amount):
        raise UserError(f"--resources: {name} must be a whole number where it is above 1; given {text!r}.")
    return amount


def resource_text(resources: Mapping[str, float]) -> str:
    """Return resources as the option names them."""
    return ",".join(
        f"{name}={amount / 1e9:g}GB" if name == "memory" else f"{name}={amount:g}" for name, amount in resources.items()
    )
