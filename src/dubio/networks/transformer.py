"""Stages of a BERT encoder, on the modules that Hugging Face transformers builds and names (text paper, Fig. 2b).

The modules hold the weights; the pass through them is written here, because transformers draws its dropout from torch's
global generator and knows nothing of noise sites. A site's draw is one a feature, shared by all positions of a text, so
that it can be given example by example whatever the length of the batch.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

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


class Embed(nn.Module):
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


class Block(nn.Module):
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


class PoolFirst(nn.Module):
    """The state of [CLS] through BERT's own dense layer and a tanh, ``[B, H]``."""

    bounds = ("dense",)

    def __init__(self, pooler: Any) -> None:
        """Take the weights of transformers' ``BertPooler``."""
        super().__init__()
        self.dense = pooler.dense

    def forward(self, hidden: Hidden) -> Tensor:
        """tanh(W·h₀ + b)."""
        return torch.tanh(self.dense(hidden.states[:, 0]))


class PoolMean(nn.Module):
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
