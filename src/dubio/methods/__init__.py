"""Methods as data: recipes, the named ones, and the work of fitting and predicting."""
