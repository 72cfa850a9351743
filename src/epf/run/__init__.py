"""How observations come in and answers go out: `fit`, `Stream`, `smooth`, `compare` and `load`."""
