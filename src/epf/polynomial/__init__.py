"""Functions of theta as polynomials: index sets, bases, collocation, kriging; Taylor series in a folder of their own."""
