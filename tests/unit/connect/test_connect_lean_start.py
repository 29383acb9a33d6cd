"""A worker without connectors starts without Arrow and NumPy, which take half of its memory, and without TLS."""

import subprocess
import sys

PROGRAM = """
import sys
import ottla.connect.worker, ottla.connect.rest.connectors, ottla.connect.rest.plugins, ottla.connect.rest.guards
print(sorted({"cryptography", "numpy", "pandas", "pyarrow", "pyspark"} & set(sys.modules)))
"""


def test_a_worker_without_connectors_loads_neither_arrow_nor_cryptography():
    found = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
