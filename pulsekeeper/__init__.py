"""The command `pulsekeeper`, for machines that have neither the server's database nor its secrets. Plain Python.

In the wheel, the packages that it imports are inside this one: their names are too general for the top level of
another project's environment.
"""

import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
if (_HERE / "core").is_dir():  # installed from the wheel
    sys.path.insert(0, str(_HERE))
