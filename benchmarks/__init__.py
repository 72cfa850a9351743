"""Measurements, not tests: `make bench` prints them and writes benchmarks/out/*.json."""
