"""Data sets: one file each, registered by name, with named splits.

``splitting.py`` divides rows into train, val, cal and test; ``shift.py`` makes splits that are not trained on;
``duplicates.py`` finds rows that two splits share; ``text_corpora.py`` turns a corpus of documents into a task;
``sources/`` finds and fetches public data, whose source cards, addresses and hashes are declared in
``sources/catalogue.toml``; ``own/`` reads the user's own data, whose options are in ``data_options.py``.
"""
