"""What every particle filter is made of: weights, resampling, proposals."""
