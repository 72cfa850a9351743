"""p(theta | x_0:t) as a statistic of fixed size: one contract, one file a family."""
