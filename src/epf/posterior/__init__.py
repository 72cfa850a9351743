"""What is known of theta at one time: charts, grids, moments, quantiles, densities and draws."""
