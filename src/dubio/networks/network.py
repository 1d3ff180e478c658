"""Contracts of a network: its stages, the head at its end, the model that joins them, and the edits of a model.

A network is an ordered list of stages that pass one value on. The value is a tensor whose first axis is the batch, or a
NamedTuple with the methods of :class:`Carried`. Because a network is a list, the engine can run the stages before the
first random one once and only the remaining ones for every sample.

Most networks give one set of features per example, ``[B, width]``. An ensemble inside one network (packed, batch or
masked ensembles) gives several, ``[B, sets, width]``: the head scores every set, the loss is the mean over sets, and at
prediction the sets are samples of different members.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Protocol, cast

import torch
from torch import Generator, Tensor, nn

from dubio.core.errors import UserError
from dubio.core.validate import Constraint
from dubio.networks.noise import Noise, Site, sites

Link = Literal["softmax", "sigmoid"]

Sizes = Annotated[
    tuple[int, ...], Constraint("with at least one number, each at least 1", lambda sizes: min(sizes, default=0) > 0)
]
"""Numbers of units, channels or windows, one for each layer, group or kernel of a network."""


class UnfitWidth(UserError):
    """An argument of an edit that the width of a layer rules out; wider layers may allow it."""


def kind_of(layer: nn.Module) -> str:
    """Return the type of a layer with its article, as a message calls it: ``a Linear``, ``an Embedding``."""
    name = type(layer).__name__
    return f"{'an' if name[0] in 'AEIOaeio' else 'a'} {name}"


class Carried(Protocol):
    """A value between stages that is not a tensor."""

    def repeat(self, times: int) -> Any:
        """Return the batch ``times`` times, one copy after another."""

    def interleave(self, times: int) -> Any:
        """Return each example ``times`` times, its copies side by side; only before stages that edits give members."""

    def footprint(self) -> int:
        """Return the number of elements that one more copy adds to memory."""


def joined(parts: Sequence[Tensor], groups: int) -> Tensor:
    """Return channels ``[B, C]`` of several tensors side by side, those of each group together."""
    if groups == 1:
        return torch.cat(list(parts), dim=1)
    return torch.cat([grouped(channels, 1, groups) for channels in parts], dim=2).flatten(1)


def grouped(values: Tensor, axis: int, groups: int) -> Tensor:
    """Return values with one axis split into groups, ``[…, groups, size / groups, …]``."""
    axis %= values.ndim
    return values.reshape(*values.shape[:axis], groups, -1, *values.shape[axis + 1 :])


class TokenBatch(NamedTuple):
    """Texts as positions into the distinct tokens of the batch.

    Attributes:
        distinct: ``[U]`` token ids; the first is always PAD.
        places: ``[B, L]`` index of each position's token in ``distinct``; 0 past a text's end.
        lengths: ``[B]`` number of tokens of each text.
    """

    distinct: Tensor
    places: Tensor
    lengths: Tensor

    def to(self, device: torch.device) -> TokenBatch:
        """Return the batch on a device."""
        return TokenBatch(*(tensor.to(device) for tensor in self))

    def repeat(self, times: int) -> TokenBatch:
        """Return the texts ``times`` times, one copy after another."""
        return TokenBatch(self.distinct, self.places.repeat(times, 1), self.lengths.repeat(times))

    def footprint(self) -> int:
        """Return the number of elements that one more copy adds to memory."""
        return self.places.numel()


class Stage(nn.Module):
    """One step of a network, with the defaults of an ordinary layer.

    A plain ``nn.Module`` may be a stage, too; it has these defaults (see :func:`contract`).

    Attributes:
        broadcasts: Whether the stage takes an unrepeated batch together with the noise of several samples, and gives
            the repeated batch.
        batched_over_weights: Whether its operations can be mapped over a stack of weights.
        widens: Elements that it makes of each element that comes in, where that is far from one.
        bounds: Submodules whose weight an edit may bound (spectral normalisation).
        uncertain: Submodules whose weights may become random; those of ``bounds`` by default.
        adapts: Dense layers that may learn a change of low rank while their own weights are frozen.
        groups: Groups of channels, one for each member of a packed ensemble, which a stage keeps together where it
            joins several tensors (:func:`joined`).
        remembers: Whether it computes the outputs of an example once and looks them up from then on.
        readers: The layers that read the stage's inputs and no outputs of other layers, and whether they read them
            whole; None where the first layer in the order of its modules does.
    """

    groups: int = 1
    readers: Mapping[str, bool] | None = None
    remembers: bool = False
    broadcasts: bool = False
    batched_over_weights: bool = True
    widens: int = 1
    bounds: tuple[str, ...] = ()
    uncertain: tuple[str, ...] | None = None
    adapts: tuple[str, ...] = ()

    def prepared(self, following: Sequence[nn.Module], limit: int) -> list[nn.Module] | None:
        """Return stages for fixed weights that replace this first stage and the following ones; None without any.

        Args:
            following: The next stages; no noise will act in them.
            limit: Largest number of elements that may be computed ahead.
        """
        return None

    def traceable(self) -> nn.Module:
        """Return a stage that computes the same by operations on tensors alone, for a graph; itself by default."""
        return self


class Lookups:
    """Seconds that a job saves because stages remember what they computed for another job of the same process.

    A method's cost is what it needs on its own, whichever method comes first: it includes them.

    Attributes:
        job: The number of the present job.
        seconds: What it saved so far.
    """

    def __init__(self) -> None:
        """Begin with the first job."""
        self.job, self.seconds = 0, 0.0

    def begin_job(self) -> None:
        """Begin another job, which has saved nothing yet."""
        self.job, self.seconds = self.job + 1, 0.0

    def seconds_saved(self) -> float:
        """Return what the present job saved so far."""
        return self.seconds


LOOKUPS = Lookups()
"""Those of this process."""

_ORDINARY = Stage()


def contract(step: nn.Module) -> Stage:
    """Return the contract of a step: its own, or the defaults for a plain torch module."""
    return step if isinstance(step, Stage) else _ORDINARY


class RandomWeights(nn.Module):
    """A layer whose weights are drawn: one set of weights per sample.

    Attributes:
        path: Path of the layer in its model; names its draws.
        drawn_weight: The weight of the current sample, set by the engine.
        generator: Source of the draws during training.
        log_sigma: Logarithm of the standard deviation of each weight.
    """

    path: str
    weight: Tensor
    drawn_weight: Tensor | None
    generator: Generator | None
    log_sigma: nn.Parameter

    def drawn(self, normals: Tensor) -> Tensor:
        """Return the weight that these standard normal draws give."""
        raise NotImplementedError

    def penalty(self, examples: int, progress: float) -> Tensor:
        """Return the layer's term of a mean loss over ``examples`` after the fraction ``progress`` of all steps."""
        raise NotImplementedError


def random_layers(root: nn.Module) -> list[RandomWeights]:
    """Return the layers whose weights are drawn."""
    return [module for module in root.modules() if isinstance(module, RandomWeights)]


class Scores(NamedTuple):
    """Scores of a batch: logits and, for some heads, variances or uncertainties of their own.

    A head gives ``logits [B, K]``, ``data_variance [B, K]`` (heteroscedastic), ``model_variance [B]`` (Gaussian
    process) and ``own [B]`` by name. Samples of a posterior have one leading axis more: ``[S, B, K]`` and ``[S, B]``.
    """

    logits: Tensor
    data_variance: Tensor | None = None
    model_variance: Tensor | None = None
    own: Mapping[str, Tensor] = MappingProxyType({})


class HeadModule(Stage):
    """The last step of a model: from features ``[rows, width]`` to scores.

    Attributes:
        normals: Standard normal draws per row that one prediction needs; 0 for most heads.
        sample_normals: The same of one noise sample, for heads whose deterministic pass needs none.
        outputs_logits: Whether the output of a pass is the logits themselves, as of one linear layer.
        missing: Why a module's last layer could not become the head's own; empty for other heads.
        link: How logits become probabilities.
        given: The draws ``[rows, normals]``, set by the engine.
        generator: Source of draws during training.
        sampling: Whether the engine draws noise samples.
    """

    normals: int = 0
    sample_normals: int = 0
    outputs_logits: bool = False
    missing: str = ""
    link: Link = "softmax"

    def __init__(self) -> None:
        """Start without draws."""
        super().__init__()
        self.given: Tensor | None = None
        self.generator: Generator | None = None
        self.sampling = False

    def adopt(self, layer: nn.Linear | None) -> None:
        """Take the last layer of a module as the head's own; None where the module's outputs are the logits.

        Raises:
            UserError: For a head that is no last layer.
        """
        if not self.outputs_logits:
            raise UserError(f"its head ({type(self).__name__}) would have to replace your module's own outputs.")
        self.add_module("linear", nn.Identity() if layer is None else layer)
        self.uncertain = () if layer is None else ("linear",)

    def loss(self, output: Tensor, labels: Tensor) -> Tensor:
        """Return the negative log-likelihood of each row, ``[rows]``."""
        raise NotImplementedError

    def scores(self, output: Tensor) -> Scores:
        """Return logits whose softmax (or sigmoid) is the prediction, and variances."""
        raise NotImplementedError

    def penalty(self, examples: int) -> Tensor | None:
        """Return the head's own term of a mean loss over ``examples``, if it has one."""
        return None

    def undecayed(self) -> Iterable[nn.Parameter]:
        """Return the parameters without weight decay; none by default."""
        return ()

    def begin_epoch(self) -> None:
        """Prepare for a pass over the training data."""

    def end_epoch(self) -> None:
        """Finish a pass over the training data, before validation."""


class Network(nn.Module):
    """Stages without a head.

    Attributes:
        stages: In the order in which they run.
        width: Features per example (and set) that come out.
        before_head: Edits that may fill the head's own sites; None for all that the head accepts.
        sets: Sets of features per example: 1 for features ``[B, width]``, more for ``[B, sets, width]``.
        pixels: Factor of the coarse pixels that its last features are (:mod:`dubio.networks.cnn_linear`); training then
            starts at the logistic regression on them. None where no features are pixels.
        arrangement: How an edit arranges training batches for members; None where every example trains every set.
    """

    arrangement: Any

    def __init__(
        self,
        stages: Sequence[nn.Module],
        width: int,
        *,
        before_head: Iterable[str] | None = None,
        sets: int = 1,
        pixels: float | None = None,
    ) -> None:
        """Join stages.

        Args:
            stages: The stages, most often :class:`Stage` objects.
            width: Features per example (and set) that come out.
            before_head: Edits that may fill the head's own sites, where the published network has none there.
            sets: Sets of features per example.
            pixels: Factor of the coarse pixels that its last features are.
        """
        super().__init__()
        self.stages = nn.ModuleList(stages)
        self.width, self.sets, self.pixels = width, sets, pixels
        self.arrangement = None
        self.before_head = None if before_head is None else frozenset(before_head)

    def forward(self, value: Any) -> Any:
        """Run every stage."""
        for stage in self.stages:
            value = stage(value)
        return value


class Model(nn.Module):
    """A network with a head."""

    head: HeadModule

    def __init__(self, network: Network, head: HeadModule) -> None:
        """Join a network and a head; the head's sites accept only what the network allows there."""
        super().__init__()
        self.network, self.head = network, head
        for site in sites(head):
            site.sets = network.sets
            if network.before_head is not None:
                site.accepts &= network.before_head

    @property
    def steps(self) -> list[nn.Module]:
        """The stages and, last, the head."""
        return [*self.network.stages, self.head]

    def forward(self, value: Any) -> Tensor:
        """Return the head's output ``[B · sets, …]``, the sets of an example side by side."""
        return cast(Tensor, self.head(self.rows(self.network(value))))

    def rows(self, features: Tensor) -> Tensor:
        """Return features as rows for the head: ``[B, sets, width]`` becomes ``[B · sets, width]``."""
        return features.flatten(0, 1) if features.ndim == 3 else features

    def by_sample(self, values: Tensor, examples: int) -> Tensor:
        """Return a head's rows ``[samples · B · sets, …]`` as ``[samples · sets, B, …]``."""
        if self.network.sets == 1:
            return values.reshape(-1, examples, *values.shape[1:])
        split = values.reshape(-1, examples, self.network.sets, *values.shape[1:])
        return split.transpose(1, 2).flatten(0, 1)

    def loss(self, batch: Any, labels: Tensor) -> Tensor:
        """Return the negative log-likelihood of each example ``[B]``, the mean over its sets."""
        sets, arrangement = self.network.sets, self.network.arrangement
        if sets == 1:
            return self.head.loss(self(batch), labels)
        if arrangement is not None and self.training:
            batch, examples = arrangement(batch, len(labels))
            index = examples.to(labels.device)
            losses = self.head.loss(self(batch), labels[index])
            return losses.new_zeros(len(labels)).index_add(0, index, losses) * (len(labels) / len(index))
        rows = self.head.loss(self(batch), labels.repeat_interleave(sets, dim=0))
        return rows.reshape(-1, sets).mean(dim=1)

    def sites(self) -> list[Site]:
        """Return every noise site, those of the head included."""
        return list(sites(self))

    def noises(self) -> list[Noise]:
        """Return the noise of the filled sites."""
        return [site.noise for site in self.sites() if site.noise is not None]

    def rates(self) -> dict[str, float]:
        """Return the drop rate of every filled site by its name."""
        return {site.name: site.noise.rate() for site in self.sites() if site.noise is not None}

    def gaussians(self) -> list[RandomWeights]:
        """Return the layers whose weights are random, those of the head included."""
        return random_layers(self)

    def draw_from(self, generator: Generator) -> None:
        """Take all draws of the following training passes from a generator."""
        for noise in self.noises():
            noise.generator = generator
        for layer in self.gaussians():
            layer.generator = generator
        self.head.generator = generator
        if self.network.arrangement is not None:
            self.network.arrangement.generator = generator

    def penalty(self, examples: int, progress: float = 1.0) -> Tensor:
        """Return what noise, random weights and the head add to a mean loss over ``examples``.

        Args:
            examples: Training examples.
            progress: Fraction of all training steps that are done.
        """
        return self.penalty_of(examples)(progress)

    def penalty_of(self, examples: int) -> Callable[[float], Tensor]:
        """Return :meth:`penalty` as a function of the progress, for many steps: the modules are searched once."""
        filled, layers = [site for site in self.sites() if site.noise is not None], self.gaussians()

        def penalty(progress: float) -> Tensor:
            terms = [term for site in filled if (term := site.penalty(examples)) is not None]
            terms += [layer.penalty(examples, progress) for layer in layers]
            if (own := self.head.penalty(examples)) is not None:
                terms.append(own)
            return torch.stack(terms).sum() if terms else torch.zeros(())

        return penalty

    def parameter_count(self) -> int:
        """Return the number of trainable parameters."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad)


class Edit(Protocol):
    """A change to a model before it is trained, as a slot value.

    Attributes:
        random: Whether the edited model is random at prediction.
        drops_inputs: Whether it drops inputs of layers; a recipe has at most one such edit.
        sampling_version: Raised by hand whenever the same weights come to give other samples; part of the identity of
            sampled predictions.
        prior_decay: Weight decay that the optimiser must have because it is part of the edit's prior; None for any.
    """

    random: ClassVar[bool]
    drops_inputs: ClassVar[bool] = False
    sampling_version: ClassVar[int] = 1

    @property
    def prior_decay(self) -> float | None:
        """The weight decay that the edit requires of the optimiser, if any."""
        return None

    def apply(self, model: Model) -> None:
        """Change a model in place.

        Raises:
            UserError: When the model has nothing that the edit could change.
        """


class Dense(Stage):
    """A noise site, a linear layer and a ReLU."""

    bounds = ("linear",)

    def __init__(self, name: str, inputs: int, outputs: int, *, accepts: Iterable[str]) -> None:
        """Make a layer whose inputs are the site ``name``."""
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.site = Site(name, inputs, accepts=accepts, weights=lambda: (self.linear.weight,))

    def forward(self, h: Tensor) -> Tensor:
        """Return relu(W·noise(h) + b)."""
        return torch.relu(self.linear(self.site(h)))
