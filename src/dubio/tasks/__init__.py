"""Data sets: one file each, registered by name, with a source card and named splits.

``splits.py`` cuts rows into train, val, cal and test; ``shift.py`` makes what was not trained on; ``duplicates.py``
looks for rows that two splits share; ``own.py`` is the user's own data.
"""
