"""Readers of deployed models, rows for them, requests to a server, values of options and what a store derives."""

from __future__ import annotations

import zlib
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path
from random import Random

from campaigns import model_seeds, reading, seeds, store_seeds
from campaigns.mutators import Mutator
from campaigns.mutators.arrays import mutate_safetensors, mutate_zip
from campaigns.mutators.documents import HOSTILE_NUMBERS, HOSTILE_TEXTS, mutate_json, mutate_json_lines
from campaigns.mutators.parquet import mutate_parquet
from campaigns.mutators.pictures import mutate_png
from campaigns.mutators.raw import any_bytes, deflated_zeros
from campaigns.mutators.tables import mutate_table
from campaigns.reader import Reader, about, once
from campaigns.seeds import Tree

PREDICTING = ("predict model {} -o OUT.csv", "predict model {} -o OUT.npz --json --decisions OUT-decisions.csv")


def compressed(inner: Mutator) -> Mutator:
    """Return a mutator of zlib streams: of what they hold, of their own bytes, and bombs."""

    def mutate(rng: Random, raw: bytes) -> bytes:
        choice = rng.random()
        if choice < 0.05:
            return b"\x78\x9c" + deflated_zeros(rng.choice((300, 3000)), b"[")
        return zlib.compress(inner(rng, zlib.decompress(raw))) if choice < 0.8 else any_bytes(rng, raw)

    return mutate


def mutate_word(rng: Random, raw: bytes) -> bytes:
    """Change the value of an option as a hand or a script slips."""
    text = raw.decode()
    for _ in range(rng.choice((1, 1, 2, 3))):
        place = rng.randrange(len(text) + 1)
        odd = rng.choice((rng.choice("<>=@:,.;()[]{}0123456789eE+-_/ %\n\t'\"ü٣"), *rng.sample(HOSTILE_TEXTS, 2)))
        ways = (
            text[:place] + odd + text[place:],
            text[:place] + odd + text[place + 1 :],
            text[:place] + text[place + 1 :],
            text[:place] + rng.choice(HOSTILE_NUMBERS) + text[place:].lstrip("0123456789.e-"),
            ",".join([text] * rng.choice((2, 50, 5000))),
            text.upper(),
            text + text,
            odd,
        )
        text = rng.choice(ways)[:100_000]
    return text.encode("utf-8", "surrogatepass")


def renamed_examples(tree: Tree, damaged: str) -> Tree:
    """Return a store whose file of examples bears the hash of its content again."""
    if not fnmatch(damaged, "store/examples/*/*.json"):
        return tree
    fresh = str(Path(damaged).with_name(f"{sha256(tree[damaged]).hexdigest()}.json"))
    return {fresh if path == damaged else path: raw for path, raw in tree.items()}


def _with_pictures(tree: Tree) -> Tree:
    """Return a store that also has a picture as earlier versions stored it."""
    folders = {Path(path).parent.name for path in tree if path.startswith("store/examples/")}
    return {**tree, **{f"store/pictures/{name}/1.png": seeds.png() for name in folders}}


def _rows(ending: str, mutator: Mutator, *inputs: str) -> Reader:
    trees = once(lambda: [model_seeds.row_files(own, ending) for own in inputs])
    path = f"rows{ending}"
    return Reader(path, trees, ((path, mutator),), about(path, *PREDICTING), 0.7, writes=True)


MODEL_READERS = (
    Reader(
        "model",
        once(lambda: [model_seeds.row_files(inputs, ".csv") for inputs in ("text", "table")]),
        (
            ("model/model.json", mutate_json),
            ("model/model.json", mutate_json),
            ("model/weights-*", mutate_safetensors),
            ("model/encoder-*", mutate_json),
            ("model/card.md", any_bytes),
        ),
        ("show model", "show model --json", reading.load_model, *about("rows.csv", *PREDICTING)),
        2,
        writes=True,
        repair=model_seeds.resealed_model,
    ),
    _rows(".csv", mutate_table, "text", "table"),
    _rows(".jsonl", mutate_json_lines, "text", "table"),
    _rows(".parquet", mutate_parquet, "text", "table"),
    _rows(".npz", mutate_zip, "table"),
    Reader(
        "policy of a model",
        once(lambda: [model_seeds.system_policy()]),
        (("damaged.json", mutate_json),),
        (
            "refer apply damaged.json rows.safetensors -o OUT.csv --json",
            "refer apply damaged.json rows.safetensors -o OUT.csv --force",
        ),
        0.7,
    ),
    Reader(
        "requests",
        once(model_seeds.requests),
        (("*.json", mutate_json),),
        (reading.send_request,),
        1.5,
        writes=True,
    ),
    Reader(
        "kept pages",
        once(lambda: [model_seeds.cached_report()]),
        (("store/derived/*", compressed(mutate_json)),),
        (reading.read_kept_page,),
        0.7,
    ),
    Reader(
        "examples",
        once(lambda: [_with_pictures(store_seeds.store_tree())]),
        (("store/examples/*/*.json", mutate_json), ("store/pictures/*", mutate_png)),
        (reading.read_examples, "store verify --store store", "store gc --store store --unreferenced"),
        0.7,
        writes=True,
        repair=renamed_examples,
    ),
    Reader(
        "options",
        once(model_seeds.option_trees),
        (("option/*", mutate_word),),
        (reading.run_with_option,),
        2,
        writes=True,
    ),
    Reader(
        "pages of files",
        once(
            lambda: [{"mine.npz": raw, "cal.npz": seeds.referral_files()["cal.npz"]} for raw in seeds.predictions_npz()]
        ),
        (("mine.npz", mutate_zip),),
        about("report", "{} mine.npz --out OUT", "{} cal.npz --ood mine.npz --out OUT", "{} mine.npz --cal cal.npz"),
        0.15,
        writes=True,
    ),
)
