"""The dashboard: data and figures by themselves, pages in a real browser."""
