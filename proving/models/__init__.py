"""The models of the cases as a user of the library writes them."""
