"""Numerical tools, independent of models: random keys, linear algebra, sums, chunks, weighted statistics."""
