"""Numerical tools that know nothing of models: random keys, linear algebra, sums, scans, weighted statistics."""
