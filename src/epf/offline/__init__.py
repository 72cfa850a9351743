"""Methods that see the whole history, or cost as much as if they did: exact references for the online ones."""
