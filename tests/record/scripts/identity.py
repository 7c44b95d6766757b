"""Prints all that a script can tell about how it was started."""

import importlib.util
import json
import os
import sys

before = importlib.util.find_spec("torch")
assert before is not None
assert before.loader is not None
assert "torch" not in sys.modules

import torch  # noqa: E402

told = {
    "argv": sys.argv,
    "name": __name__,
    "file": __file__,
    "package": __package__,
    "spec": getattr(__spec__, "name", None),
    "path": sys.path,
    "cwd": os.getcwd(),  # noqa: PTH109 - users write it so
    "flags": str(sys.flags),
    "main": sorted(vars(sys.modules["__main__"])),
    "meta_path": [getattr(f, "__name__", type(f).__name__) for f in sys.meta_path],
    "sitecustomize": getattr(sys.modules.get("sitecustomize"), "FROM_THE_USER", None),
    "torch": [type(torch.__loader__).__name__, type(torch.__spec__.loader).__name__, torch.__spec__.origin],
    "found": [before.name, before.origin, before.loader.get_filename("torch")],
    "relative": open("beside.txt").read(),  # noqa: SIM115, PTH123
    "hash": hash("the same in both"),
}
print(json.dumps(told, indent=1))
