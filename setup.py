"""Find the packages; everything else about the build is in pyproject.toml.

Automatic discovery cannot rename a folder, and two are: `dashboard/` is installed as
`ampdoctor_dashboard` and `sample_runs/` as `ampdoctor_sample_runs`, because the plain names are too
common to claim in somebody's environment.
"""

from setuptools import find_packages, setup

DASHBOARD = "ampdoctor_dashboard"
SAMPLE_RUNS = "ampdoctor_sample_runs"

setup(
    packages=[
        *find_packages(include=["ampdoctor", "ampdoctor.*"]),
        DASHBOARD,
        SAMPLE_RUNS,
        *(f"{DASHBOARD}.{name}" for name in find_packages("dashboard")),
    ],
    package_dir={DASHBOARD: "dashboard", SAMPLE_RUNS: "sample_runs"},
)
