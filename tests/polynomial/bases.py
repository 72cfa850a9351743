"""Bases that the tests of polynomials share."""

from dataclasses import replace
from itertools import product

from epf.polynomial._indices import Indices


def tensor(*orders):
    """All powers up to these orders, each parameter's whatever the others'."""
    return Indices(tuple(product(*(range(order + 1) for order in orders))))


def squared(basis):
    """The basis of products of two polynomials."""
    return replace(basis, indices=basis.indices.product(basis.indices))
