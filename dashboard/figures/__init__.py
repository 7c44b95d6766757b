"""Figures: from plain numbers to a plotly Figure, and nothing else. They serve pages, reports and notebooks alike."""
