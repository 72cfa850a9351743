"""What every particle filter is made of: weights, resampling, ordering, backward sampling and proposals."""
