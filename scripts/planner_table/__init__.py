"""Rows of the table of planners: models and clusters of published data."""
