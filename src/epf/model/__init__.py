"""State-space models: how they are written, checked, traced and simulated; `zoo` has ready-made models."""
