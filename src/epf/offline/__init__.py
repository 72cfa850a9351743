"""Methods that need the whole series: point mass, PMMH, particle Gibbs and SMC^2."""
