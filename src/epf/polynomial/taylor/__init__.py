"""Taylor series of traced functions, propagated operation by operation."""
