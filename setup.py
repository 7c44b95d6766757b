"""Find the packages; everything else about the build is in pyproject.toml.

Automatic discovery cannot rename a folder, and two are: `dashboard/` is installed as
`ampdoctor_dashboard` and `sample_runs/` as `ampdoctor_sample_runs`, because the plain names are too
common to claim in somebody's environment.
"""

from pathlib import Path

from setuptools import Extension, find_namespace_packages, setup
from setuptools.command.build_py import build_py

DASHBOARD = "ampdoctor_dashboard"
SAMPLE_RUNS = "ampdoctor_sample_runs"

# Optional: without a compiler ampdoctor installs all the same, and torch operations do the kernel's work.
# The stable ABI, so that one build serves every version of Python.
KERNEL = Extension(
    "ampdoctor.record.stats._kernel",
    ["ampdoctor/record/stats/kernel.c"],
    depends=[f"ampdoctor/record/stats/{name}.h" for name in ("describe", "finite", "note", "pairs", "scan")],
    extra_compile_args=["-std=gnu11", "-O3", "-Wall", "-Wextra"],
    extra_link_args=["-pthread"],
    py_limited_api=True,
    optional=True,
)

# Python executes this line of a .pth file whenever it starts: a training with AMPDOCTOR=arm in its environment can be
# attached to without a debugger, and all others only look into their environment.
ARM = 'import os; os.environ.get("AMPDOCTOR") == "arm" and __import__("ampdoctor")\n'


class BuildWithArm(build_py):  # type: ignore[misc]
    """Puts the .pth file beside the packages; an editable installation goes without."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            Path(self.build_lib, "ampdoctor-arm.pth").write_text(ARM, encoding="ascii")

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        own = [] if self.editable_mode else [str(Path(self.build_lib, "ampdoctor-arm.pth"))]
        return [*super().get_outputs(include_bytecode), *own]


# Namespace packages, because the folders of recipes and of the bootstrap are no packages of ours: they
# hold scripts, and an `__init__.py` in them would be one file too many on the path of the user.
setup(
    packages=[
        *find_namespace_packages(include=["ampdoctor", "ampdoctor.*"]),
        DASHBOARD,
        SAMPLE_RUNS,
        *(f"{DASHBOARD}.{name}" for name in find_namespace_packages("dashboard")),
        *(f"{SAMPLE_RUNS}.{name}" for name in find_namespace_packages("sample_runs")),
    ],
    cmdclass={"build_py": BuildWithArm},
    ext_modules=[KERNEL],
    package_dir={DASHBOARD: "dashboard", SAMPLE_RUNS: "sample_runs"},
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
