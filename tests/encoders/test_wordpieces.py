"""Word pieces against cuts made by hand and against transformers' own tokeniser."""

import json

import numpy as np
import pytest

pytest.importorskip("transformers", reason="the extra bert is not installed")

from transformers import BertTokenizer

from dubio.core.errors import UnknownName, UserError
from dubio.core.registry import NETWORKS
from dubio.core.types import Examples
from dubio.encoders import WordPieceEncoding, encoder_from_json, encoding_of, fit_encoder
from dubio.encoders.pretrained import resolve_arguments, resolve_encoder
from tests.networks.helpers import POSITIONS, VOCABULARY, save_bert

TEXTS = ("Hello THERE!", "unbelievable cats", "", "the xyz, ünbeliev", "a b c " * 30)


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("DUBIO_CACHE", str(tmp_path_factory.getbasetemp() / "pieces-cache"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_bert(tmp_path_factory.mktemp("tiny"))


def examples(texts):
    return Examples(tuple(texts), np.zeros(len(texts), dtype=np.int64), np.array([str(i) for i in range(len(texts))]))


def pieces(encoder, texts):
    found = encoder.encode(examples(texts))
    return [[VOCABULARY[i] for i in found.row(row)] for row in range(len(texts))]


@pytest.mark.parametrize("tokeniser", [True, False], ids=["tokenizer.json", "vocab.txt"])
def test_texts_are_cut_as_by_hand(tmp_path, tokeniser):
    folder = save_bert(tmp_path / "encoder", tokeniser=tokeniser)
    encoder = fit_encoder(WordPieceEncoding(resolve_encoder(str(folder)), 8), examples(["anything"]))
    assert encoder.shape == (len(VOCABULARY),)
    assert pieces(encoder, TEXTS) == [
        ["[CLS]", "hello", "there", "!", "[SEP]"],
        ["[CLS]", "un", "##believ", "##able", "cat", "##s", "[SEP]"],
        ["[CLS]", "[SEP]"],
        ["[CLS]", "the", "[UNK]", ",", "un", "##believ", "[SEP]"],
        ["[CLS]", "a", "b", "c", "a", "b", "c", "[SEP]"],
    ]
    assert pieces(encoder_from_json(json.loads(json.dumps(encoder.to_json()))), TEXTS) == pieces(encoder, TEXTS)


def test_texts_are_cut_as_transformers_cuts_them(tmp_path):
    folder = save_bert(tmp_path / "encoder", tokeniser=False)
    theirs = BertTokenizer.from_pretrained(str(folder))
    encoder = fit_encoder(WordPieceEncoding(resolve_encoder(str(folder)), 20), examples([""]))
    wanted = theirs(list(TEXTS), truncation=True, max_length=20)["input_ids"]
    found = encoder.encode(examples(TEXTS))
    assert [found.row(i).tolist() for i in range(len(TEXTS))] == wanted


def test_what_is_saved_needs_no_files(monkeypatch, tmp_path):
    folder = save_bert(tmp_path / "its-own", seed=7)
    saved = fit_encoder(WordPieceEncoding(resolve_encoder(str(folder)), 8), examples([""])).to_json()
    assert saved["source"] == {"folder": "its-own"}
    monkeypatch.setenv("DUBIO_CACHE", str(tmp_path / "empty"))
    assert pieces(encoder_from_json(saved), ["cats"]) == [["[CLS]", "cat", "##s", "[SEP]"]]


def test_no_text_at_all(folder):
    assert (
        len(fit_encoder(WordPieceEncoding(resolve_encoder(str(folder)), 8), examples([""])).encode(examples([]))) == 0
    )


def test_a_network_says_which_encoding_it_wants(folder):
    network = NETWORKS.entry("bert")
    arguments = resolve_arguments(network, network.check({"encoder": str(folder)}))
    made = encoding_of(network, arguments, {"max_length": 20})
    assert made == WordPieceEncoding(arguments["encoder"], 20)
    with pytest.raises(UnknownName, match="max_length"):
        encoding_of(network, arguments, {"max_lenght": 20})
    with pytest.raises(UserError, match=f"at most {POSITIONS}"):
        encoding_of(network, arguments, {"max_length": 257})
    with pytest.raises(UserError, match=r"network\.encoder"):
        encoding_of(network, arguments, {"encoder": "x"})


def test_other_networks_keep_theirs():
    network = NETWORKS.entry("textcnn")
    assert encoding_of(network, network.check({}), {"vocabulary": 10}).vocabulary == 10


@pytest.mark.parametrize("arguments", [("folder", 20), ("sha256:" + "0" * 64, 2), ("sha256:" + "0" * 64, True)])
def test_nonsense_is_refused(arguments):
    with pytest.raises(UserError):
        WordPieceEncoding(*arguments)
