"""The proving ground: models with exact posteriors, and how far each method is from them.

`python -m proving.references` makes the references, without epf; `python -m proving` runs the methods against them; `python
-m proving.summary` counts. A case is data, a prior and a likelihood in `proving.cases` (plain NumPy and JAX, no epf) and the
same model, written as a user would, in `proving.models`.
"""
