"""Photographs of the eye's background: the layouts they come in, their preparation, its cache, and their splits.

``layouts.py`` recognises how a folder is laid out and reads its labels (``labels.py``); ``crop.py`` turns one file into
one square of pixels; ``cache.py`` does that once for all of them, in several processes, into a memory-mapped file;
``photographs.py`` joins pixels and labels; ``shifts.py`` makes splits that no patient is divided between. A problem
with a photograph is a line of the preprocessing report (``images/files.py``), not an error.
"""
