"""What a run leaves with the user: posterior, history, forecasts, scores, the verdict, tables, plots and the report page."""
