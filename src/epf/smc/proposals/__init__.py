"""Proposals: where a particle's new state is drawn from, and the weight that makes up for it. One a file."""
