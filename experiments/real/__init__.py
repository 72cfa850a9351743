"""Real series with published answers: one model per file, fitted by `epf.fit` as it comes, beside an independent answer."""
