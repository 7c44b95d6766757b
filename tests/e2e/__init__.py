"""Tests of the installed command from outside."""
