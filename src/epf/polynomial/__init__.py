"""Functions of theta as polynomials: a few coefficients that can be added, multiplied, moved and evaluated."""
