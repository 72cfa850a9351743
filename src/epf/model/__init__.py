"""State-space models: how they are written, checked, traced and simulated; `zoo` has models ready to use."""
