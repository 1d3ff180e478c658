"""Ways to a corpus: a folder the user names, the cache, the package index, the original public URL.

``places.py`` says where to look, ``corpus.py`` what a corpus looks like and where it comes from. ``finding.py`` looks
without touching the network, ``obtaining.py`` goes through every way in order. ``download.py``, ``package.py`` and
``archive.py`` are the ways themselves.
"""
