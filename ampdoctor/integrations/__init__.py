"""The frameworks that people train with: one file each, imported by those who use the framework and by nobody else.

Each declares what it provides (`PROVIDES`): what three recorded steps hold at least. A conformance test runs three
steps of the real framework and checks it.
"""
