"""What a fit returns: posterior, history, forecasts, scores, the verdict, tables, plots and the report page."""
