"""A BERT of two blocks and 32 features with random weights, as files in a folder."""

from __future__ import annotations

from pathlib import Path

import torch

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = ("un", "##believ", "##able", "hello", "there", "!", "a", "b", "c", "cat", "##s", "dog", "on", "the", "mat", ",")
MADE_UP = tuple(f"{name}{i}" for name in ("one", "two", "three") for i in range(6))
VOCABULARY = (*SPECIAL, *WORDS, *MADE_UP, "word")
POSITIONS = 256


def save(folder: Path, *, seed: int = 0, layers: int = 2, pooler: bool = True, tokeniser: bool = True) -> Path:
    """Write config.json, model.safetensors and tokenizer.json (or vocab.txt) as transformers does."""
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=len(VOCABULARY), hidden_size=32, num_hidden_layers=layers, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=POSITIONS,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = BertModel(config, add_pooling_layer=pooler)
        for tensor in model.parameters():  # larger than BERT's own first weights, so that texts differ in the end
            if tensor.ndim == 2:
                torch.nn.init.normal_(tensor, std=0.2)
    model.save_pretrained(folder, safe_serialization=True)
    if tokeniser:
        cut = BertWordPieceTokenizer({word: index for index, word in enumerate(VOCABULARY)})
        cut.save(str(folder / "tokenizer.json"))
    else:
        (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    return folder
