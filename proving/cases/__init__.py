"""Data, priors and likelihoods of the cases, by theme; nothing here comes from the library. Each module has `CASES`.

To add a case: write the model in `proving.models`, the rest here, and run `python -m proving.references NAME`.
"""
