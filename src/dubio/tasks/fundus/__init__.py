"""Photographs of the eye's background: the layouts they come in, their preparation, its cache, and their splits.

``layouts.py`` finds out how a folder is laid out and reads its labels; ``opening.py`` and ``disc.py`` turn one file
into one square of pixels; ``cache.py`` does that once for all of them, in several processes, into a memory-mapped
file; ``cutting.py`` makes splits that no patient is torn between. Everything that goes wrong with a photograph is a
line of the preprocessing report (``findings.py``), not an error.
"""
