"""Models without a reference: whether posteriors of them are right is seen by the ranks of the truth."""
