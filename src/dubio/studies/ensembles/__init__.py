"""The ensembling study (P): every method against its number of samples, and what independent networks make of it."""
