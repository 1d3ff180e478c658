"""A multi-layer perceptron for tables."""

from __future__ import annotations

from dubio.core.registry import network
from dubio.networks.network import Dense, Network, Sizes


@network("mlp", inputs="table")
def mlp(shape: tuple[int, ...], *, hidden: Sizes = (64, 64)) -> Network:
    """Dense layers with ReLU; noise acts on the inputs of every layer except the first, whose inputs are the data.

    Args:
        shape: (features,).
        hidden: Units of each hidden layer.
    """
    widths = (shape[0], *hidden)
    stages = [
        Dense(f"layer{i + 1}", widths[i], widths[i + 1], accepts=("dropout", "concrete_dropout") if i else ())
        for i in range(len(hidden))
    ]
    return Network(stages, hidden[-1])
