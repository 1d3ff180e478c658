"""Post-hoc scores: uncertainties read off the features before a trained network's last layer, without gradients.

With h the features of an example (D wide), z = W h + b its logits and y the labels of the training split, every score
is one number per example, higher where the network is less certain:

=======================  =========================================================================================
``energy``               −T · log Σ_k exp(z_k/T)  (Liu et al., 2020)
``react``                the energy at T = 1 of W min(h, c) + b, c a percentile of training activations
                         (Sun et al., 2021)
``ash``                  the energy at T = 1 of W s(h) + b, s pruned and scaled (Djurisic et al., 2023, ASH-S)
``mahalanobis``          min_c (h − μ_c)ᵀ Σ⁻¹ (h − μ_c)  (Lee et al., 2018)
``relative_mahalanobis`` the same less (h − μ)ᵀ Σ₀⁻¹ (h − μ), one Gaussian of all classes (Ren et al., 2021)
``knn``                  the distance of h/‖h‖ from its k-th neighbour in training (Sun et al., 2022)
``vim``                  α ‖P⊥(h − o)‖ − log Σ_k exp z_k, the log-odds of a virtual class
                         (Wang et al., 2022)
``density``              −log Σ_c π_c N(h; μ_c, Σ_c)  (Mukhoti et al., 2023)
=======================  =========================================================================================

A score changes no probability. Where labels do not exclude each other, the energy is −Σ_k log(1 + exp z_k) (Wang et
al., 2021, JointEnergy), and scores that need one class per example are not defined. Covariances are shrunk towards a
multiple of the identity (:func:`shrunk`), so that fewer rows than dimensions and constant features are no exception.
Everything is computed in float64 on the CPU, whatever the device of the network.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from dubio.core.errors import UserError
from dubio.core.specs import part
from dubio.core.validate import Positive, PositiveFloat, Share
from dubio.networks.network import Link

Statistics = Mapping[str, Tensor]
"""What a score has learned from the training split, by name."""

BLOCK_ROWS = 4096
"""Rows that are converted to float64 at once."""

LEAST_SHRINKAGE = 1e-8
"""Smallest weight of the identity in a covariance: with it, every one has an inverse."""

LEAST_RESIDUAL = 1e-10
"""Length outside the principal subspace, as a share of the whole, that is not rounding alone."""

DENSITY_ELEMENTS = 1 << 26
"""Largest number of elements of all classes' covariances, 256 MB in float32."""


class LastLayer(NamedTuple):
    """The last layer in float64, z = W h + b, and what turns logits into probabilities."""

    weight: Tensor
    bias: Tensor
    link: Link

    def energy(self, features: Tensor, temperature: float = 1.0) -> Tensor:
        """Return the energy of the logits of features ``[N, D]``, ``[N]``."""
        logits = (features @ self.weight.T + self.bias) / temperature
        terms = softplus(logits).sum(1) if self.link == "sigmoid" else torch.logsumexp(logits, 1)
        return -temperature * terms


class TrainingFeatures(NamedTuple):
    """Features of the training split, as a score is fitted to them.

    Attributes:
        features: ``[N, D]`` float32.
        labels: ``[N]`` class indices; of several labels, none is used.
        last: The last layer.
        seed: Seed of what a score draws.
    """

    features: Tensor
    labels: Tensor
    last: LastLayer
    seed: int

    def blocks(self, rows: Tensor | None = None) -> Iterator[Tensor]:
        """Yield the features of some rows, or of all, in float64, block by block."""
        chosen = self.features if rows is None else self.features[rows]
        return (chosen[i : i + BLOCK_ROWS].double() for i in range(0, len(chosen), BLOCK_ROWS))

    def by_class(self) -> dict[int, Tensor]:
        """Return the rows of each class that occurs."""
        labels = np.unique(self.labels.numpy())
        return {label: torch.nonzero(self.labels == label)[:, 0] for label in labels[labels >= 0].tolist()}

    def mean(self, rows: Tensor | None = None) -> Tensor:
        """Return the mean of some rows, or of all."""
        count = len(self.features) if rows is None else len(rows)
        return sum((block.sum(0) for block in self.blocks(rows)), torch.zeros(())) / count


class FeatureScore(Protocol):
    """A post-hoc score as a value: fitted to training features, it scores those of other examples.

    Attributes:
        name: The column of predictions that holds it.
        needs_last_layer: Whether it reads the weights of a linear last layer.
        needs_classes: Whether it is defined only where classes exclude each other.
    """

    name: ClassVar[str]
    needs_last_layer: ClassVar[bool] = False
    needs_classes: ClassVar[bool] = False

    def check(self, width: int, classes: int) -> None:
        """Refuse features for which the statistics would be too large; by default none.

        Raises:
            UserError: Naming the bound.
        """
        return

    def check_rows(self, rows: int) -> None:
        """Refuse a training split with too few rows; by default none.

        Raises:
            UserError: Naming their number.
        """
        return

    def fit(self, train: TrainingFeatures) -> Statistics:
        """Return what is needed of the training features; nothing by default."""
        return {}

    def score(self, statistics: Statistics, features: Tensor, last: LastLayer) -> Tensor:
        """Return the score of features ``[N, D]`` in float64, ``[N]``."""


# --- the last layer ---------------------------------------------------------------------------------------------------


@part("energy")
@dataclass(frozen=True)
class Energy(FeatureScore):
    """−T · log Σ_k exp(z_k/T)."""

    temperature: PositiveFloat = 1.0

    name: ClassVar[str] = "energy"
    needs_last_layer: ClassVar[bool] = True

    def score(self, statistics: Statistics, features: Tensor, last: LastLayer) -> Tensor:
        """Return the energy of the network's own logits."""
        return last.energy(features, self.temperature)


@part("react")
@dataclass(frozen=True)
class ReAct(FeatureScore):
    """The energy after every activation above c is set to c, the ``share`` quantile of all training activations."""

    share: Share = 0.9

    name: ClassVar[str] = "react"
    needs_last_layer: ClassVar[bool] = True

    def fit(self, train: TrainingFeatures) -> Statistics:
        """Return c."""
        return {"limit": torch.tensor(float(np.quantile(train.features.numpy(), self.share)), dtype=torch.float64)}

    def score(self, statistics: Statistics, features: Tensor, last: LastLayer) -> Tensor:
        """Return the energy of the logits of min(h, c)."""
        return last.energy(features.minimum(statistics["limit"]))


@part("ash")
@dataclass(frozen=True)
class ASH(FeatureScore):
    """The energy after the lowest ``share`` of an example's activations is set to 0 and the rest scaled.

    The rest is multiplied by exp(s₁/s₂), the sums of activations before and after (ASH-S). Activations are taken to be
    those of a ReLU; where they are not, a negative one counts as 0 in both sums, so that the factor is at most
    exp(1/(1 − share)). The paper shapes the maps before global pooling, this the pooled features.
    """

    share: Share = 0.9

    name: ClassVar[str] = "ash"
    needs_last_layer: ClassVar[bool] = True

    def score(self, statistics: Statistics, features: Tensor, last: LastLayer) -> Tensor:
        """Return the energy of the logits of the shaped features."""
        width = features.shape[1]
        count = max(1, width - round(width * self.share))
        values, places = features.topk(count, dim=1)
        before, after = features.clamp_min(0.0).sum(1), values.clamp_min(0.0).sum(1)
        factor = torch.where(after > 0.0, before / after, torch.zeros_like(after)).exp()
        return last.energy(torch.zeros_like(features).scatter(1, places, values * factor[:, None]))


@part("vim")
@dataclass(frozen=True)
class ViM(FeatureScore):
    """The log-odds of a virtual class whose logit grows with the distance from the principal subspace.

    With o = −W⁺ b and P⊥ the projection on all eigenvectors of Σ_i (h_i − o)(h_i − o)ᵀ but the first d, the virtual
    logit is α ‖P⊥(h − o)‖, where α = Σ_i max_k z_ik / Σ_i ‖P⊥(h_i − o)‖ over training; α is 0 where that
    sum is, up to rounding. The paper's score, the probability of the virtual class, is a monotone function of this one.

    Attributes:
        share: d as a share of D, or of N where there are fewer training rows; the paper has 1,000 of 2,048 and 512 of
            768 and more.
    """

    share: Share = 0.5

    name: ClassVar[str] = "vim"
    needs_last_layer: ClassVar[bool] = True
    needs_classes: ClassVar[bool] = True

    def fit(self, train: TrainingFeatures) -> Statistics:
        """Return o, an orthonormal basis of the residual space ``[D, D − d]``, and α."""
        origin = -torch.linalg.pinv(train.last.weight) @ train.last.bias
        moments = sum(((block - origin).T @ (block - origin) for block in train.blocks()), torch.zeros(()))
        vectors = torch.linalg.eigh(moments).eigenvectors.flip(1)
        basis = vectors[:, int(self.share * min(train.features.shape)) :].contiguous()
        norms = sum((float(_lengths((block - origin) @ basis).sum()) for block in train.blocks()), 0.0)
        every = sum((float(_lengths(block - origin).sum()) for block in train.blocks()), 0.0)
        logits = (block @ train.last.weight.T + train.last.bias for block in train.blocks())
        highest = sum((float(z.amax(1).sum()) for z in logits), 0.0)
        scale = highest / norms if norms > LEAST_RESIDUAL * every else 0.0
        return {"origin": origin, "basis": basis, "scale": torch.tensor(scale, dtype=torch.float64)}

    def score(self, statistics: Statistics, features: Tensor, last: LastLayer) -> Tensor:
        """Return the virtual logit plus the energy."""
        norms = _lengths((features - statistics["origin"]) @ statistics["basis"])
        return statistics["scale"] * norms + last.energy(features)


# --- distances --------------------------------------------------------------------------------------------------------


@part("mahalanobis")
@dataclass(frozen=True)
class Mahalanobis(FeatureScore):
    """The squared distance from the nearest class mean, in units of the covariance that all classes share.

    The paper's perturbation of the input needs gradients and is left out, as is its combination of layers, which needs
    out-of-distribution examples. A class without training rows has no mean and is left out.
    """

    name: ClassVar[str] = "mahalanobis"
    needs_classes: ClassVar[bool] = True

    def fit(self, train: TrainingFeatures) -> Statistics:
        """Return the mean of all rows, R with Σ⁻¹ = RᵀR, and the means of the classes less the first, times R."""
        means, residuals = _class_means(train)
        mean, root = train.mean(), inverse_root(shrunk(residuals()))
        return {"mean": mean, "root": root, "means": (torch.stack(list(means.values())) - mean) @ root.T}

    def score(self, statistics: Statistics, features: Tensor, last: LastLayer) -> Tensor:
        """Return the smallest squared distance."""
        whitened = (features - statistics["mean"]) @ statistics["root"].T
        return _squared_distances(whitened, statistics["means"]).amin(1)


@part("relative_mahalanobis", version=2)
@dataclass(frozen=True)
class RelativeMahalanobis(FeatureScore):
    """:class:`Mahalanobis` less the squared distance from the mean of all rows, in units of their covariance.

    The covariance of all rows is Σ₀ = Σ + Σ_c π_c (μ_c − μ)(μ_c − μ)ᵀ with the Σ of the classes, so that directions in
    which no row varies, and both covariances are what shrinkage made of them, count the same in both distances. With
    a shrinkage of its own, Σ₀ could be the smaller one there, and examples off the training data score as certain.
    """

    name: ClassVar[str] = "relative_mahalanobis"
    needs_classes: ClassVar[bool] = True

    def fit(self, train: TrainingFeatures) -> Statistics:
        """Return the statistics of the classes, and those of all rows."""
        of_classes = Mahalanobis().fit(train)
        counts = torch.tensor([len(rows) for rows in train.by_class().values()], dtype=torch.float64)
        root, means = of_classes["root"], of_classes["means"]  # with Σ = L Lᵀ, Σ₀ = L (I + Σ_c π_c m_c m_cᵀ) Lᵀ
        between = (means * (counts / counts.sum())[:, None]).T @ means
        return {**of_classes, "root_of_all": inverse_root(torch.eye(len(root), dtype=root.dtype) + between) @ root}

    def score(self, statistics: Statistics, features: Tensor, last: LastLayer) -> Tensor:
        """Return the difference of the two squared distances."""
        background = ((features - statistics["mean"]) @ statistics["root_of_all"].T).square().sum(1)
        return Mahalanobis().score(statistics, features, last) - background


@part("knn")
@dataclass(frozen=True)
class NearestNeighbours(FeatureScore):
    """The distance of the normalised features from their k-th neighbour among those of training.

    They are stored in float16, which moves a vector of length 1, and therefore a distance, by less than 5e-4.

    Attributes:
        k: Which neighbour; the default is the last one where there are fewer.
        bank: Largest number of training rows that are stored: a seeded random subset of them.
    """

    k: Positive = 50
    bank: Positive = 20_000

    name: ClassVar[str] = "knn"

    def check_rows(self, rows: int) -> None:
        """Refuse a neighbour that there is not, other than the default one, for which the last one stands."""
        if self.k > rows and self.k != NearestNeighbours().k:
            raise UserError(f"knn: neighbour must be at most the number of training rows, {rows}; given {self.k}.")

    def fit(self, train: TrainingFeatures) -> Statistics:
        """Return the normalised features of at most ``bank`` rows."""
        rows = torch.from_numpy(seeded_rows(len(train.features), self.bank, train.seed))
        return {"bank": torch.cat([_normalised(block).half() for block in train.blocks(rows)])}

    def score(self, statistics: Statistics, features: Tensor, last: LastLayer) -> Tensor:
        """Return the k-th smallest distance."""
        own, bank = _normalised(features), statistics["bank"]
        nearest = torch.empty(len(own), 0, dtype=own.dtype)
        for start in range(0, len(bank), BLOCK_ROWS):
            block = bank[start : start + BLOCK_ROWS].double()
            both = torch.cat([nearest, _squared_distances(own, block)], dim=1)
            nearest = both.topk(min(self.k, both.shape[1]), largest=False, sorted=False).values
        return nearest.amax(1).sqrt()


@part("density", version=2)
@dataclass(frozen=True)
class Density(FeatureScore):
    """The negative log-density of a mixture with one Gaussian per class, as DDU has it.

    A class with fewer than three different rows takes the covariance that all classes share. Of two rows x and −x the
    products x xᵀ are equal, so that nothing would shrink a covariance of rank one: its inverse is 10⁸ times as large in
    every other direction, and new examples of the class would lie outside of it.
    """

    name: ClassVar[str] = "density"
    needs_classes: ClassVar[bool] = True

    def check(self, width: int, classes: int) -> None:
        """Refuse covariances that would not fit in memory."""
        if classes * width**2 > DENSITY_ELEMENTS:
            raise UserError(
                f"density: {classes} covariances of {width} × {width} numbers are {classes * width**2:,}, more than "
                f"the {DENSITY_ELEMENTS:,} that are stored; 'mahalanobis' shares one covariance between all classes."
            )

    def fit(self, train: TrainingFeatures) -> Statistics:
        """Return means, inverse roots in float32, and log π_c − ½ log|2πΣ_c| of the classes."""
        means, residuals = _class_means(train)
        shared = inverse_root(shrunk(residuals()))
        rows = train.by_class()
        total = sum(map(len, rows.values()))
        roots, heights = [], []
        for label, own in rows.items():
            root = shared
            if _has_three_different(train.features[own]):
                root = inverse_root(shrunk(block - means[label] for block in train.blocks(own)))
            half_determinant = -root.diagonal().log().sum()  # of L = R⁻¹
            constant = 0.5 * len(root) * math.log(2.0 * math.pi)
            heights.append(math.log(len(own) / total) - constant - half_determinant)
            roots.append(root.float())
        return {
            "means": torch.stack(list(means.values())),
            "roots": torch.stack(roots),
            "heights": torch.stack(heights),
        }

    def score(self, statistics: Statistics, features: Tensor, last: LastLayer) -> Tensor:
        """Return −log Σ_c exp(height_c − ½ (h − μ_c)ᵀ Σ_c⁻¹ (h − μ_c))."""
        columns = zip(statistics["means"], statistics["roots"], statistics["heights"], strict=True)
        terms = [h - 0.5 * ((features - mean) @ root.double().T).square().sum(1) for mean, root, h in columns]
        return -torch.logsumexp(torch.stack(terms), dim=0)


# --- shared by the scores ---------------------------------------------------------------------------------------------


def shrunk(centred: Iterable[Tensor]) -> Tensor:
    """Return the covariance of centred rows, shrunk as Ledoit and Wolf (2004) estimate it to be best.

    With S = (1/N) Σ_i x_i x_iᵀ and m = tr S / D, it is (1 − λ) S + λ m I, where

        λ = min(1, (1/N²) Σ_i ‖x_i x_iᵀ − S‖² / ‖S − m I‖²),

    at least :data:`LEAST_SHRINKAGE`. λ falls as 1/N: of many rows S remains. Of rows that are all 0 it is the identity.

    Args:
        centred: The rows ``[n, D]`` in float64, block by block.
    """
    products, fourth, count = torch.zeros(()), 0.0, 0
    for block in centred:
        products = products + block.T @ block
        fourth += float(block.square().sum(1).square().sum())
        count += len(block)
    covariance = products / count
    width = len(covariance)
    mean = float(covariance.trace()) / width
    unit = torch.eye(width, dtype=torch.float64)
    if mean <= 0.0:
        return unit
    noise = (fourth / count - float(covariance.square().sum())) / count
    spread = float((covariance - mean * unit).square().sum())
    share = 1.0 if noise >= spread else max(LEAST_SHRINKAGE, noise / spread)
    return (1.0 - share) * covariance + share * mean * unit


def inverse_root(covariance: Tensor) -> Tensor:
    """Return R = L⁻¹ with Σ = L Lᵀ: Σ⁻¹ = RᵀR, and a distance in units of Σ is one between vectors times R."""
    unit = torch.eye(len(covariance), dtype=covariance.dtype)
    root: Tensor = torch.linalg.solve_triangular(torch.linalg.cholesky(covariance), unit, upper=False)
    return root


def seeded_rows(count: int, most: int, seed: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return all rows, or a random subset of ``most`` of them in ascending order."""
    if count <= most:
        return np.arange(count)
    return np.sort(np.random.default_rng(seed).choice(count, most, replace=False))


def _class_means(train: TrainingFeatures) -> tuple[dict[int, Tensor], Callable[[], Iterator[Tensor]]]:
    """Return the mean of each class, and a function that yields the rows of all classes less their means."""
    rows = train.by_class()
    means = {label: train.mean(own) for label, own in rows.items()}
    return means, lambda: (block - means[label] for label, own in rows.items() for block in train.blocks(own))


def _has_three_different(rows: Tensor) -> bool:
    """Return whether at least three of the rows differ from each other."""
    others = rows[(rows != rows[0]).any(dim=1)]
    return len(others) > 0 and bool((others != others[0]).any())


def _squared_distances(one: Tensor, other: Tensor) -> Tensor:
    """Return ‖a − b‖² for every pair of rows, ``[N, M]``."""
    squares = one.square().sum(1)[:, None] + other.square().sum(1)
    return (squares - 2.0 * one @ other.mT).clamp_min(0.0)


def _normalised(features: Tensor) -> Tensor:
    """Return every row at length 1; a row of zeros stays one."""
    return features / _lengths(features)[:, None].clamp_min(torch.finfo(features.dtype).tiny)


def _lengths(rows: Tensor) -> Tensor:
    """Return the Euclidean length of every row."""
    return rows.square().sum(1).sqrt()
