"""A network with one thing wrong that a test says, and what the conformance suite tells of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from dubio.core.registry import Entry
from dubio.networks.noise import Site
from dubio.testing import Finding, check_network

BOTH = ("dropout", "concrete_dropout")


def entry(factory: Callable[..., Any], inputs: str = "table", version: Any = 1) -> Entry[Any]:
    return Entry("mine", factory, "tests", "A network.", {"inputs": inputs, "version": version})


def told(factory: Callable[..., Any], inputs: str = "table", **facts: Any) -> list[str]:
    findings: list[Finding] = check_network(entry(factory, inputs, **facts))
    return [finding.problem for finding in findings]


class Broken(nn.Module):
    """A linear layer behind a site, with one thing wrong that a test says."""

    def __init__(self, shape: tuple[int, ...], site: Site | None = None, inputs: int = 0) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs or shape[0], 16)
        self.site = site or Site("dense", shape[0], accepts=BOTH, weights=lambda: (self.linear.weight,))

    def before(self, h: Tensor) -> Tensor:
        return h

    def after(self, h: Tensor) -> Any:
        return h

    def forward(self, h: Tensor) -> Any:
        return self.after(torch.tanh(self.linear(self.site(self.before(h)))))
