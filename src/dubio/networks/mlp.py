"""A multi-layer perceptron for tables."""

from __future__ import annotations

from dubio.core.errors import UserError
from dubio.core.registry import network
from dubio.networks.network import Dense, Network


@network("mlp", inputs="table")
def mlp(shape: tuple[int, ...], *, hidden: tuple[int, ...] = (64, 64)) -> Network:
    """Dense layers with ReLU; noise acts on the inputs of every layer except the first, whose inputs are the data.

    Args:
        shape: (features,).
        hidden: Units of each hidden layer.
    """
    if not hidden or min(hidden) < 1:
        raise UserError(f"mlp: hidden must name at least one layer of at least one unit; given {list(hidden)}.")
    widths = (shape[0], *hidden)
    stages = [
        Dense(f"layer{i + 1}", widths[i], widths[i + 1], accepts=("dropout", "concrete_dropout") if i else ())
        for i in range(len(hidden))
    ]
    return Network(stages, hidden[-1])
