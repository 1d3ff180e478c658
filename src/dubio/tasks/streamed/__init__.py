"""Photographs that stay in their files: found, surveyed once, and decoded when a batch asks for them.

``layout.py`` finds the files and their classes, ``survey.py`` the ones that cannot be read, ``decoding.py`` makes one
square of pixels of a file, ``rows.py`` does so for the rows of a split, reading ahead.
"""
