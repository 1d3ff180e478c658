"""What the conformance suite says of noise sites and of what lies behind them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from dubio.networks.network import Network
from dubio.networks.noise import Site
from tests.testing.helpers import BOTH, Broken, told


def site_network(site: Callable[[int], Site | None], stage: type[Broken] = Broken) -> Callable[..., Network]:
    def mine(shape: tuple[int, ...]) -> Network:
        return Network([stage(shape, site(shape[0]))], 16)

    return mine


def test_no_site() -> None:
    assert "It has no noise site that accepts an edit" in told(site_network(lambda w: Site("x", w, accepts=())))[0]


def test_an_unknown_edit() -> None:
    found = told(site_network(lambda w: Site("x", w, accepts=("drop_out",))))
    assert "Site 'x' accepts 'drop_out', which is not an edit. Did you mean 'dropout'?" in found[0]


def test_site_names_collide() -> None:
    class Two(Broken):
        def __init__(self, shape: tuple[int, ...], site: Site | None = None) -> None:
            super().__init__(shape, site)
            self.other = Site("x", 16, accepts=("dropout",))

        def after(self, h: Tensor) -> Tensor:
            return self.other(h)

    twice = told(site_network(lambda w: Site("x", w, accepts=("dropout",)), Two))
    assert "The site name 'x' is also that of another site" in twice[0]
    assert "also that of a head's site" in told(site_network(lambda w: Site("head", w, accepts=("dropout",))))[0]


def test_a_site_that_is_never_reached() -> None:
    class Idle(Broken):
        def __init__(self, shape: tuple[int, ...], site: Site | None = None) -> None:
            super().__init__(shape, site)
            self.idle = Site("idle", 16, accepts=("dropout",))

    assert told(site_network(lambda w: None, Idle)) == ["Noise (dropout) at site 'idle' never reaches the output."]


def test_a_site_of_the_wrong_width() -> None:
    found = told(site_network(lambda w: Site("x", w + 2, accepts=("dropout",))))
    assert "Filling site 'x' with dropout makes the pass fail" in found[0]


def test_a_site_without_weights() -> None:
    found = told(site_network(lambda w: Site("x", w, accepts=BOTH)))
    assert found == ["Site 'x' accepts concrete_dropout and does not name the weights behind it."]


def test_a_parameter_that_never_learns() -> None:
    class Spare(Broken):
        def __init__(self, shape: tuple[int, ...], site: Site | None = None) -> None:
            super().__init__(shape, site)
            self.spare = nn.Parameter(torch.randn(3))

    assert told(site_network(lambda w: None, Spare)) == ["With dropout, the loss does not depend on stages.0.spare."]


def test_weights_decide_the_way() -> None:
    class Branching(Broken):
        def after(self, h: Tensor) -> Tensor:
            return h if float(self.linear.weight.detach().sum()) > 0 else 2 * h

    found = told(site_network(lambda w: None, Branching))
    assert any("Mapping over two weight states raised" in text for text in found)
