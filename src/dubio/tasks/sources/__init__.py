"""Ways to a corpus: a folder the user names, the cache, the package index, the original public URL.

``locate.py`` describes corpora and finds their copies on this machine, ``fetch.py`` fetches what is missing, and
``archive.py`` extracts archives safely.
"""
