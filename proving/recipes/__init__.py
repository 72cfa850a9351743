"""Likelihoods by other means than the library's: Kalman, forward sums, point masses, large particle filters."""
