"""The Laplace approximation: curvature, structures, choice of prior and scale, and the collector."""
