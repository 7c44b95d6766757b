"""The version, in a module that imports nothing so that the build can read it without importing."""

__version__ = "0.1.0"
