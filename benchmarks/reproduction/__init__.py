"""Re-runs of the evaluations in the five papers: tables and plots under `docs/reproduction/`."""
