"""Drawing theta from a log-density on a box: one contract, one file a sampler."""
