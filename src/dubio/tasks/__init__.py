"""Data sets: one file each, registered by name, with a source card and named splits.

``splitting.py`` divides rows into train, val, cal and test; ``shift.py`` makes splits that are not trained on;
``duplicates.py`` finds rows that two splits share; ``own/`` reads the user's own data, whose options are in
``data_options.py``.
"""
