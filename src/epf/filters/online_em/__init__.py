"""Online expectation-maximisation: a point estimate of theta from smoothed statistics."""
