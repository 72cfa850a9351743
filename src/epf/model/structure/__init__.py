"""What a model's program says about its parameters: log-densities as sums of functions of theta times functions of data."""
