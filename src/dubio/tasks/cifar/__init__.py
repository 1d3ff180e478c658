"""CIFAR-10 and CIFAR-100: reading every form they come in, cutting, and what was not trained on.

``pickles.py`` reads the original files without executing them; ``forms.py`` knows the forms and ``sets.py`` the data
sets with their sources; ``cutting.py`` makes the splits, ``corruption.py`` and ``corrupted.py`` the corrupted test
images, ``outside.py`` the images of other sorts.
"""
