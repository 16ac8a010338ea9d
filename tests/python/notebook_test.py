#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/python.ipynb runs from its first cell to its last, and shows what it says."""
import os
import pathlib
import unittest

from needs import need

need("numpy", "nbformat", "nbclient", "ipykernel")

import nbclient  # noqa: E402
import nbformat  # noqa: E402

SOURCE = pathlib.Path(os.environ["PENSTOCK_SOURCE"])


class Notebook(unittest.TestCase):
    def test_runs(self):
        notebook = nbformat.read(SOURCE / "docs/python.ipynb", as_version=4)
        nbformat.validate(notebook)
        cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
        self.assertTrue(all(not cell.outputs for cell in cells), "is kept without outputs")
        nbclient.NotebookClient(notebook, timeout=250, kernel_name="python3").execute()
        self.assertIn("<iframe srcdoc", cells[0].outputs[0].data["text/html"])
        self.assertEqual(cells[-1].outputs[0].text.strip(), "microbatches")
        for cell in cells[1:-1]:
            self.assertTrue(cell.outputs[0].data["text/plain"])


if __name__ == "__main__":
    unittest.main()
