"""Building blocks of particle filters: weights, resampling, ordering, backward sampling and proposals."""
