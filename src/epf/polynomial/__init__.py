"""Functions of theta as polynomials: index sets, bases, kriging; Taylor series in a folder of their own."""
