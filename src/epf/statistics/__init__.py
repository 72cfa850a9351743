"""p(theta | path) as a statistic of fixed size: conjugate (exact) or a log-polynomial."""
