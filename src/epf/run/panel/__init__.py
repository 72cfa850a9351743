"""Many series of one model: `epf.fit_panel` for what there is, `epf.Panel` for what keeps coming."""
