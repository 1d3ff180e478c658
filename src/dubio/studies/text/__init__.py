"""The study of text classification (T): its benchmark, published numbers, claims and figures."""
