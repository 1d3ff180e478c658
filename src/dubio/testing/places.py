"""Rules about noise sites: their names, what they accept, whether noise there matters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

import numpy as np
import torch
from torch import Tensor

from dubio.core.errors import nearest
from dubio.core.specs import known_parts, name_of
from dubio.core.types import Modality
from dubio.inference.engine import plain_passes
from dubio.networks.draws import BlockDraws
from dubio.networks.network import Network
from dubio.networks.noise import ConcreteDropoutEdit, Site, SiteEdit, sites
from dubio.testing.findings import Problem, spoken
from dubio.testing.passes import ROWS, SAMPLES, TOLERANCE, logits_of, with_head
from dubio.testing.samples import batch_of, some

RESERVED = ("head", "mu", "sigma")
"""Names of the sites of heads: noise is drawn by site name, so a network's sites need others."""


def known_edits() -> dict[str, type[SiteEdit]]:
    """Every registered part that can fill a site, by name."""
    return {name: cls for name, cls in known_parts().items() if callable(getattr(cls, "noise", None))}


def sites_are_named(network: Network) -> Iterator[Problem]:
    """One site at least, each with a name of its own and edits that exist."""
    found = list(sites(network))
    edits = known_edits()
    if not any(site.accepts for site in found):
        yield Problem(
            "It has no noise site that accepts anything, so that dropout could act before its head only.",
            "Put a dubio.networks.noise.Site where dropout belongs, accepts=('dropout', 'concrete_dropout').",
        )
    names = [site.name for site in found]
    for name in sorted({name for name in names if names.count(name) > 1 or name in RESERVED}):
        whose = "a head's site" if name in RESERVED else "another site"
        yield Problem(
            f"The site name {name!r} is also that of {whose}; both would draw the same noise.",
            "Give every site a name of its own.",
        )
    for site in found:
        for name in sorted(site.accepts - set(edits)):
            guess = nearest(name, edits)
            hint = f" Did you mean {guess!r}?" if guess else ""
            yield Problem(
                f"Site {site.name!r} accepts {name!r}, which is no edit.{hint}",
                f"Edits are {', '.join(sorted(edits))}.",
            )


def every_site_acts(build: Callable[[], Network], inputs: Modality) -> Iterator[Problem]:
    """Fill one site at a time and see whether samples differ from a deterministic pass."""
    edits = known_edits()
    for index, site in enumerate(sites(build())):
        for name in sorted(site.accepts & set(edits)):
            try:
                edit = edits[name]()
            except TypeError:  # an edit of the user's own that cannot be made without arguments
                continue
            try:
                acts = _acts(build(), index, edit, inputs)
            except Exception as fault:
                yield Problem(
                    f"Filling site {site.name!r} with {name} makes the pass fail: {spoken(fault)}",
                    f"Its width ({site.width}) must be the size of axis 1 of what the site is given.",
                )
                continue
            if not acts:
                yield Problem(
                    f"Noise ({name}) at site {site.name!r} never reaches the output.",
                    "Call the site in the stage's forward: self.site(h); or remove it.",
                )


def _acts(network: Network, index: int, edit: SiteEdit, inputs: Modality) -> bool:
    """Whether any sample with noise at this one site differs from the pass without."""
    model = with_head(network).eval()
    site = list(sites(network))[index]
    batch, rows = batch_of(some(inputs, ROWS, 9)), np.arange(ROWS)
    with torch.inference_mode():
        still = logits_of(plain_passes(model, batch, BlockDraws(3), rows, 0))
        site.noise = edit.noise(site).eval()
        noisy = logits_of(plain_passes(model, batch, BlockDraws(3), rows, SAMPLES))
    # relative to the outputs, which a deep network makes small before it is trained
    return bool((noisy - still.repeat(SAMPLES, 1)).abs().max() > TOLERANCE * still.abs().max())


def sites_name_weights(network: Network) -> Iterator[Problem]:
    """Concrete dropout's penalty weighs the layer that it feeds; without it the learned rate means nothing."""
    edit = ConcreteDropoutEdit()
    for site in sites(network):
        if name_of(edit) in site.accepts and not _weighs(network, site, edit):
            yield Problem(
                f"Site {site.name!r} accepts concrete_dropout and does not say which weights it feeds.",
                "Give the site weights=lambda: (self.linear.weight,), the weights of the layer behind it.",
            )


def _weighs(network: Network, site: Site, edit: ConcreteDropoutEdit) -> bool:
    own = [p for p in network.parameters() if p.requires_grad]
    site.noise = edit.noise(site)
    penalty = cast(Tensor, site.penalty(10))
    site.noise = None
    return any(g is not None and g.any() for g in torch.autograd.grad(penalty, own, allow_unused=True))
