"""Online filters, one algorithm per file, all behind the contract in `_base`."""
