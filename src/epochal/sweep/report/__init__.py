"""The report of a sweep as HTML and PNG, and its export to Optuna."""
