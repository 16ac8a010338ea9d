# SPDX-License-Identifier: Apache-2.0
"""Rows of the table of planners: models and clusters of published data."""
