#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Debian package: made from the build that is there, installed into a fresh root, used there.

Needs $PENSTOCK_BUILD and $PENSTOCK_SOURCE.
"""

import gzip
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.request

sys.dont_write_bytecode = True  # the source tree stays clean
import fresh_root
from fresh_root import FreshRoot

SOURCE = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
BUILD = pathlib.Path(os.environ["PENSTOCK_BUILD"])
SCRIPT = SOURCE / "scripts/package.sh"
PENSTOCK = BUILD / "cli/penstock"
EPOCH = "1700000000"


def package_sh(*arguments, umask=0o022):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("DEB", "PENSTOCK_"))}
    return subprocess.run([str(SCRIPT), *map(str, arguments)],
                          env=clean | {"SOURCE_DATE_EPOCH": EPOCH}, umask=umask, text=True,
                          capture_output=True, stdin=subprocess.DEVNULL, timeout=200)


def make_package(folder, umask=0o022):
    done = package_sh("--built", BUILD, "-o", folder, umask=umask)
    if done.returncode:
        raise RuntimeError(f"package.sh failed:\n{done.stderr}")
    return pathlib.Path(done.stdout.removesuffix("\n"))


def here(*command):
    """What the program of the build prints, with the data of the sources."""
    return subprocess.run([PENSTOCK, *command], cwd=SOURCE, check=True, text=True,
                          env=os.environ | {"PENSTOCK_HOME": str(SOURCE)}, capture_output=True,
                          timeout=100).stdout


def setUpModule():
    global TOP, DEB, ROOT, FIELDS
    TOP = pathlib.Path(tempfile.mkdtemp(prefix="penstock-package-"))
    unittest.addModuleCleanup(shutil.rmtree, TOP)
    DEB = make_package(TOP / "made")
    said = subprocess.run(["dpkg-deb", "-f", str(DEB)], check=True, text=True, capture_output=True)
    FIELDS = dict(line.split(": ", 1) for line in said.stdout.splitlines() if line[0] != " ")
    ROOT = FreshRoot(TOP / "root")
    ROOT.dpkg("-i", str(DEB))
    ROOT.add_libraries_of(fresh_root.names_in(FIELDS["Depends"]))
    ROOT.add_bash()


class Case(unittest.TestCase):
    maxDiff = None

    def ok(self, *command):
        done = ROOT.run(*command)
        self.assertEqual((done.returncode, done.stderr), (0, ""), command)
        return done.stdout

    def formatted(self, words, page):
        done = subprocess.run(words, input=page, text=True, capture_output=True,
                              env=os.environ | {"LC_ALL": "C.UTF-8"}, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""), words)
        return done.stdout


class Made(Case):
    def test_fields(self):
        version = here("--version").split()[1]
        self.assertEqual((FIELDS["Package"], FIELDS["Version"]), ("penstock", version))
        self.assertEqual(DEB.name, f"penstock_{version}_{FIELDS['Architecture']}.deb")
        self.assertRegex(FIELDS["Maintainer"], r"^.+ <\S+@\S+>$")
        self.assertEqual(FIELDS["Description"], "simulator of pipeline-parallel training")
        needed = fresh_root.names_in(FIELDS["Depends"])
        for name in ("libc6", "libstdc++6"):
            self.assertIn(name, needed)
        self.assertTrue([name for name in needed if name.startswith("libsimgrid")], needed)
        self.assertEqual([name for name in needed if name.endswith("-dev")], [])

    def test_is_the_same_whoever_makes_it_and_when(self):
        again = make_package(TOP / "again", umask=0o077)
        self.assertTrue(again.read_bytes() == DEB.read_bytes())

    def test_everything_is_roots_and_nothing_is_writable_by_others(self):
        listed = subprocess.run(["dpkg-deb", "-c", str(DEB)], check=True, text=True,
                                capture_output=True).stdout.splitlines()
        self.assertGreater(len(listed), 100)
        for line in listed:
            self.assertRegex(line, r"^(drwxr-xr-x|-rw-r--r--|-rwxr-xr-x|lrwxrwxrwx) root/root ")
            self.assertIn(" 2023-11-14 ", line)

    def test_programs_are_stripped(self):
        for file in ("bin/penstock", "bin/penstock-run", "lib/penstock/libpenstock_simgrid.so"):
            sections = subprocess.run(["readelf", "-SW", ROOT.path / "usr" / file], check=True,
                                      text=True, capture_output=True).stdout
            self.assertNotIn(".symtab", sections)

    def test_what_is_shipped_is_all_there(self):
        share = ROOT.path / "usr/share/penstock"
        for folder in ("models", "scenarios"):
            for file in (SOURCE / folder).rglob("*"):
                if file.suffix in (".yaml", ".json"):
                    copy = share / file.relative_to(SOURCE)
                    self.assertEqual(copy.read_bytes(), file.read_bytes())
        sources = [f for f in share.rglob("*") if f.suffix in (".cpp", ".hpp", ".build")]
        self.assertEqual(sources, [])

    def test_usage(self):
        done = package_sh("--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for wrong in (["--fast"], ["-o"]):
            done = package_sh(*wrong)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(wrong[0], done.stderr)


class Installed(Case):
    """In the root are neither the sources nor the build."""

    def test_the_sources_are_not_there(self):
        for place in (SOURCE, BUILD):
            self.assertFalse((ROOT.path / place.relative_to("/")).exists())

    def test_simulates_a_scenario_by_its_name(self):
        for command in (["simulate", "gpt-2.2b-2bw", "--reproducible"],
                        ["compare", "small-gpipe", "small-1f1b", "--reproducible"]):
            self.assertEqual(self.ok("penstock", *command), here(*command))

    def test_lists_what_is_shipped(self):
        for what in ("scenarios", "models", "devices", "clusters", "schedules"):
            self.assertEqual(self.ok("penstock", "list", what), here("list", what))

    def test_executes(self):
        command = ["replay", "small-1f1b", "--clock", "virtual", "--reproducible"]
        self.assertEqual(self.ok("penstock", *command), here(*command))
        self.ok("penstock", "replay", "small-gpipe", "--clock", "virtual", "--processes")

    def test_doctor_finds_modules_data_and_backend(self):
        found = self.ok("penstock", "doctor")
        for works in ("engine simgrid", "shipped models", "backend host"):
            self.assertRegex(found, rf"(?m)^{works} +yes ")

    def test_a_wrong_name_is_helped(self):
        done = ROOT.run("penstock", "simulate", "gpt-2.2b-2bx")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("did you mean 'gpt-2.2b-2bw'?", done.stderr)

    def test_bash_completes(self):
        script = ("source /usr/share/bash-completion/completions/penstock\n"
                  "complete -p penstock\nCOMP_WORDS=(penstock simulate gpt-2.2b-2) COMP_CWORD=2\n"
                  '_penstock; printf "%s\\n" "${COMPREPLY[@]}"')
        self.assertEqual(self.ok("bash", "-c", script).splitlines(),
                         ["complete -o filenames -F _penstock penstock", "gpt-2.2b-2bw"])

    def test_without_python_nothing_is_served(self):
        done = ROOT.run("penstock", "serve")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("python3", done.stderr)

    def test_zsh_and_fish_have_theirs(self):
        share = ROOT.path / "usr/share"
        for shell, file in (("zsh", "zsh/vendor-completions/_penstock"),
                            ("fish", "fish/vendor_completions.d/penstock.fish")):
            self.assertEqual((share / file).read_text(), here("completion", shell))

    def test_the_manual_page_formats(self):
        file = ROOT.path / "usr/share/man/man1/penstock.1.gz"
        page = gzip.decompress(file.read_bytes()).decode()
        there = [words for words in (["groff", "-man", "-Tutf8", "-ww"],
                                     ["man", "--warnings", "-l", "-"],
                                     ["mandoc", "-Tutf8", "-Wwarning"]) if shutil.which(words[0])]
        if not there:
            self.skipTest("neither groff nor mandoc nor man is installed")
        for words in there:
            self.assertIn("pipeline", self.formatted(words, page))

    def test_works_where_it_was_moved(self):
        moved = ROOT.path / "opt/moved"
        moved.mkdir(parents=True)
        subprocess.run(["dpkg-deb", "-x", str(DEB), str(moved)], check=True)
        scenarios = moved / "usr/share/penstock/scenarios"
        shutil.copy(scenarios / "small-1f1b.yaml", scenarios / "only-here.yaml")
        program = "/opt/moved/usr/bin/penstock"
        self.assertIn("only-here", self.ok(program, "list", "scenarios"))
        self.ok(program, "replay", "only-here", "--clock", "virtual")
        self.assertNotIn("only-here", self.ok("penstock", "list", "scenarios"))


class WithPython(Case):
    """With the Python of this machine, as the package recommends it, and nothing of the build."""

    @classmethod
    def setUpClass(cls):
        if not (BUILD / "python/penstock/serve.py").exists():
            raise unittest.SkipTest("the package for Python is not built")
        cls.usr = TOP / "unpacked/usr"
        subprocess.run(["dpkg-deb", "-x", str(DEB), str(cls.usr.parent)], check=True)
        cls.environment = {k: v for k, v in os.environ.items() if not k.startswith(("PENSTOCK_", "PYTHON"))}
        cls.environment["PYTHONDONTWRITEBYTECODE"] = "1"

    def test_is_recommended(self):
        self.assertRegex(FIELDS["Recommends"], r"^python3 \(>= 3\.(\d+)~\), python3 \(<< 3\.\d+~\), python3-numpy$")

    def test_is_imported(self):
        code = "import penstock; print(penstock.simulate('small-1f1b').makespan_s, penstock.program())"
        done = subprocess.run([sys.executable, "-c", code], cwd=TOP, check=True, text=True, capture_output=True,
                              env=self.environment | {"PYTHONPATH": str(self.usr / "lib/python3/dist-packages")})
        self.assertEqual(done.stdout.split(), ["41.0", str(self.usr / "bin/penstock")])

    def test_serves_the_playground(self):
        if not (BUILD / "playground/index.html").exists():
            self.skipTest("the playground is not built")
        serving = subprocess.Popen([self.usr / "bin/penstock", "serve"], cwd=TOP, text=True, env=self.environment,
                                   stdout=subprocess.PIPE)
        self.addCleanup(serving.stdout.close)
        self.addCleanup(serving.wait)
        self.addCleanup(serving.terminate)
        url = serving.stdout.readline().strip()
        with urllib.request.urlopen(url) as page:
            self.assertIn(b'<meta name="penstock-engine"', page.read())
        asked = json.dumps({"scenario": (SOURCE / "scenarios/small-1f1b.yaml").read_text(), "engine": "simgrid"})
        with urllib.request.urlopen(url + "simulate", asked.encode()) as answer:
            self.assertEqual(json.load(answer)["result"]["makespan_s"], 41.0)

    def test_what_is_missing_is_said(self):
        copy = TOP / "without"
        shutil.copytree(self.usr, copy, symlinks=True)
        for folder, why in (("share/penstock/playground", "the page is not there"),
                            ("lib/penstock/python", "needs the package for Python")):
            shutil.rmtree(copy / folder, ignore_errors=True)
            done = subprocess.run([copy / "bin/penstock", "serve"], cwd=TOP, text=True, env=self.environment,
                                  capture_output=True)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn(why, done.stderr)


class Removed(Case):
    def test_nothing_is_left(self):
        root = FreshRoot(TOP / "removed")
        before = {path for path in root.path.rglob("*") if "dpkg" not in path.parts}
        root.dpkg("-i", str(DEB))
        self.assertTrue((root.path / "usr/bin/penstock").exists())
        root.dpkg("--purge", "penstock")
        self.assertEqual({p for p in root.path.rglob("*") if "dpkg" not in p.parts} - before, set())


def why_impossible():
    for tool in ("meson", "dpkg-deb", "dpkg-shlibdeps", "strip", "readelf"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    return fresh_root.why_impossible()


if __name__ == "__main__":
    why = why_impossible()
    if why:
        print(f"skipped: {why}")
        sys.exit(77)
    unittest.main(verbosity=2)
