"""Online filters, one algorithm a file, all behind the contract in `base`."""
