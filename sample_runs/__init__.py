"""Training scripts with their recorded traces and expected diagnoses. Installed as ampdoctor_sample_runs."""
