"""The dashboard, installed as the import package `ampdoctor_dashboard`."""
