#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The library as others use it: the example of docs/library.md, compiled with what `meson install` has
put into a folder and with nothing of this tree."""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
BUILD = os.environ["PENSTOCK_BUILD"]


def printed(*words, **settings):
    done = subprocess.run([str(word) for word in words], text=True, capture_output=True, stdin=subprocess.DEVNULL, **settings)
    if done.returncode:
        raise AssertionError(f"{words}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done.stdout


class Library(unittest.TestCase):
    def test_example(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            printed("meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", folder / "installed")
            found, = folder.glob("installed/**/lib/pkgconfig/penstock.pc")
            prefix = folder / "moved"
            found.parent.parent.parent.rename(prefix)  # what is installed may be moved
            environment = {k: v for k, v in os.environ.items() if k not in ("CPATH", "LIBRARY_PATH")}
            environment["PKG_CONFIG_PATH"] = str(prefix / "lib/pkgconfig")
            flags = printed("pkg-config", "--cflags", "--libs", "penstock", env=environment).split()
            self.assertFalse([flag for flag in flags if str(SOURCE) in flag], flags)
            self.assertEqual(printed("pkg-config", "--modversion", "penstock", env=environment).strip(),
                             printed(prefix / "bin/penstock", "--version").split()[1])
            example = folder / "bubbles.cpp"
            example.write_bytes((SOURCE / "docs/library/bubbles.cpp").read_bytes())
            printed("c++", "-O1", "-Wall", "-Wextra", "-Werror", example, "-o", folder / "bubbles", *flags, env=environment,
                    cwd=folder)
            page = (SOURCE / "docs/library.md").read_text()
            shown = re.search(r"\$ \./bubbles\n((?:    .*\n)+)", page)[1]
            self.assertEqual(printed(folder / "bubbles").split("\n"), [line[4:] for line in shown.split("\n")[:-1]] + [""])


if __name__ == "__main__":
    unittest.main()
