# SPDX-License-Identifier: Apache-2.0
"""A program with a few sources changed, without a second tree: the changed files lie in a folder
that stands before the tree where includes are looked for, what includes one of them is compiled
again, unoptimized, and all else is linked as it was built.

A template (templates/*.diff) says what changes: hunks below the name of their file, without line
numbers. A hunk's old lines must stand in the file once, so a template whose place has moved says so
instead of landing elsewhere; a hunk of new lines alone is a new file.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess


TEMPLATES = pathlib.Path(__file__).parent / "templates"


def names_of_templates():
    return sorted(path.stem.replace("-", " ") for path in TEMPLATES.glob("*.diff"))


def changed(new, root):
    """What the files that the template of a new schedule, key, ... touches are with it, by their
    path in the tree."""
    template = TEMPLATES / f"{new.replace(' ', '-')}.diff"
    files, name, hunk = {}, None, None
    lines = template.read_text(encoding="utf-8").splitlines()
    for line in [*lines, "@@"]:
        if hunk and (line == "@@" or line.startswith("+++ ")):
            files[name] = _with_hunk(files[name], hunk, f"{template.name}, {name}")
            hunk = None
        if line.startswith("+++ "):
            name = line[4:]
            path = root / name
            files[name] = path.read_text(encoding="utf-8") if path.exists() else ""
        elif line == "@@":
            hunk = []
        elif line[:1] in (" ", "-", "+", ""):
            hunk.append((line[:1] or " ", line[1:]))
        else:
            raise ValueError(f"{template.name}: what is '{line}'?")
    return files


def _with_hunk(text, hunk, where):
    side = lambda signs: "".join(f"{line}\n" for sign, line in hunk if sign in signs)
    old, new = side(" -"), side(" +")
    if (not old and text) or (old and text.count(old) != 1):
        raise ValueError(f"{where}: these lines are not there once, where the template changes them:\n{old}")
    return text.replace(old, new) if old else new


class Build:
    """What was built in a folder, and how."""

    def __init__(self, folder, root):
        self.folder, self.root = folder, root
        self.commands = {entry["output"]: entry for entry in json.loads(
            (folder / "compile_commands.json").read_text(encoding="utf-8"))}

    def ninja(self, *words):
        return subprocess.run(["ninja", "-C", str(self.folder), "-t", *words], check=True, text=True,
                              capture_output=True).stdout

    def link(self, program):
        return shlex.split(self.ninja("commands", program).splitlines()[-1])

    def objects(self, archive):
        """Of an archive, or an object itself."""
        return [archive] if archive in self.commands else \
            [name for name in self.commands if name.startswith(archive + ".p/")]

    def in_tree(self, path):
        """As it is called in the tree; None: it is not there."""
        full = os.path.normpath(self.folder / path)
        return os.path.relpath(full, self.root) if full.startswith(f"{self.root}{os.sep}") else None

    def including(self, objects, files):
        """Which of the objects are made from one of the files."""
        found, name = [], None
        for line in self.ninja("deps", *objects).splitlines():
            if not line.startswith(" "):
                name = line.split(":")[0]
            elif self.in_tree(line.strip()) in files and found[-1:] != [name]:
                found.append(name)
        return found


class Overlay:
    def __init__(self, build, files, folder):
        """`folder`: the same for each round, so that a cache of the compiler's knows it again."""
        self.build, self.files, self.folder = build, files, folder
        shutil.rmtree(folder, ignore_errors=True)
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def program(self, name):
        """Links it anew; its path."""
        link = self.build.link(name)
        objects = {word: self.build.objects(word) for word in link if word.endswith((".a", ".o"))}
        touched = self.build.including(sum(objects.values(), []), self.files)
        jobs = [self._object(output) for output in touched]
        made = {output: job[0] for output, job in zip(touched, jobs)}
        added = {}
        for source in self._new_sources():
            archive = self._room_of(source, objects)
            jobs.append(self._object(objects[archive][0], source))
            added.setdefault(archive, []).append(jobs[-1][0])
        with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            list(pool.map(lambda job: self._run(job[1]), jobs))
        words = []
        for word in link:
            parts = objects.get(word, [])
            if word in added or made.keys() & set(parts):
                words += [made.get(part, part) for part in parts] + added.get(word, [])
            else:
                words.append(word)
        path = self.folder / pathlib.Path(name).name
        words[words.index("-o") + 1] = str(path)
        self._run(words)
        return path

    def _run(self, words):
        done = subprocess.run(words, cwd=self.build.folder, text=True, capture_output=True)
        if done.returncode != 0:
            raise RuntimeError(f"{shlex.join(words)}\n{done.stderr[-4000:]}")

    def _new_sources(self):
        return [name for name in self.files
                if name.endswith(".cpp") and not (self.build.root / name).exists()]

    def _room_of(self, source, objects):
        """The archive that is to hold a new source: the changed list of a room's names it."""
        for folder in pathlib.PurePath(source).parents:
            listed = self.files.get(f"{folder}/meson.build", "")
            if f"'{pathlib.PurePath(source).relative_to(folder)}'" in listed:
                return next(a for a in objects if a.startswith(f"{folder}/lib"))
        raise ValueError(f"no changed meson.build names {source}")

    def _object(self, output, source=None):
        """Where what is made of a source lies (None: of the object's own), and by which command."""
        entry = self.build.commands[output]
        made = self.folder / (f"{source}.o" if source else output)
        made.parent.mkdir(parents=True, exist_ok=True)
        words, out = shlex.split(entry["command"]), []
        first = next(i for i, word in enumerate(words) if word.startswith("-I"))
        skipped = False
        for i, word in enumerate(words):
            if i == first:
                out.append(f"-I{self.folder}")
            if skipped:
                skipped = False
            elif word in ("-MQ", "-MF", "-include", "-o"):  # headers made beforehand are optimized
                skipped = True
            elif word == "-MD" or re.fullmatch(r"-O.|-g\d?", word):
                pass
            elif word == entry["file"]:
                out.append(str(self.folder / source if source else self._source(entry["file"])))
            else:
                out.append(word)
        return str(made), [*out, "-O0", "-o", str(made)]

    def _source(self, file):
        """The changed one; of one that the build made of others, one with the changed ones."""
        name = self.build.in_tree(file)
        if name in self.files:
            return self.folder / name
        text = (self.build.folder / file).read_text(encoding="utf-8")
        included = re.compile(r"(?<=^#include<)[^>]+", re.MULTILINE)

        def instead(match):
            inner = self.build.in_tree(match[0])
            return str(self.folder / inner) if inner in self.files else match[0]

        again = included.sub(instead, text)
        if again == text:
            return self.build.folder / file
        path = self.folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(again, encoding="utf-8")
        return path
