# SPDX-License-Identifier: Apache-2.0
"""A copy of the launcher in a temporary tree where meson, ninja, apt-get and the like are fakes.

PATH is one directory: links to the ordinary tools the scripts need, and the fakes. A tool that is
not put there does not exist. Every fake appends "NAME ARGUMENTS" to a log when it is called.
"""

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]

ORDINARY_TOOLS = ["bash", "cat", "cp", "env", "find", "flock", "grep", "mkdir", "python3",
                  "readlink", "realpath", "rm", "sed", "sleep", "tail", "tee", "touch"]

FAKE_MESON = """
case $1 in
  setup) for dir; do case $dir in */build | */build-sanitize | */build-thread | */build-fuzz) break ;; esac; done
         mkdir -p "$dir" && touch "$dir/build.ninja"
         [[ -e "{missing}/pybind11" ]] || echo "build python: phony" >"$dir/build.ninja" ;;
esac
"""
FAKE_NINJA = """
echo "[1/1] linking penstock"
mkdir -p "$2/cli" && cp "{tree}/cli/program" "$2/cli/penstock" && cp "$2/cli/penstock" "$2/cli/penstock-first"
if [[ " $* " == *" python "* ]]; then mkdir -p "$2/python/penstock" && touch "$2/python/penstock/_core.so"; fi
"""
# "Installs" by copying what is offered under the name of the package.
FAKE_APT_GET = """
for package; do
  if [[ -d "{offered}/$package" ]]; then cp "{offered}/$package"/* "{bin}"; fi
done
"""
# A library is missing when a file of its name lies in the directory `missing`.
FAKE_PKG_CONFIG = '[[ ! -e "{missing}/$2" ]]'


class Sandbox:
    def __init__(self) -> None:
        self.processes: list[subprocess.Popen] = []
        self.top = Path(tempfile.mkdtemp(prefix="penstock launcher "))
        self.tree = self.top / "a tree"
        self.bin, self.offered, self.missing = (self.top / d for d in ("bin", "offered", "missing"))
        self.log = self.top / "log"
        for directory in (self.tree / "cli", self.tree / "scripts", self.bin, self.offered,
                          self.missing):
            directory.mkdir(parents=True)
        self._copy_scripts()
        self.program('printf "%s\\n" "$@"')
        for name in ORDINARY_TOOLS:
            (self.bin / name).symlink_to(shutil.which(name, path="/usr/bin:/bin"))
        self._add_fakes()

    def _copy_scripts(self) -> None:
        for name in ("penstock", "check", "scripts/setup.sh", "scripts/count_tests.py"):
            shutil.copy(SOURCE / name, self.tree / name)
        (self.tree / "meson.build").write_text("project('penstock', 'cpp')\n")
        (self.tree / "cli/main.cpp").write_text("int main() {}\n")

    def _add_fakes(self) -> None:
        self.fake("meson", FAKE_MESON)
        self.fake("ninja", FAKE_NINJA)
        self.fake("apt-get", FAKE_APT_GET)
        self.fake("pkg-config", FAKE_PKG_CONFIG)
        self.fake("sudo", 'exec "$@"')
        for name in ("c++", "clang-format-16", "chromium", "node", "npm"):
            self.fake(name, "")

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        shutil.rmtree(self.top)

    def fake(self, name: str, body: str, directory: Path | None = None) -> None:
        """An executable that logs its call and runs `body`, where {tree} and so on are paths."""
        for word in ("tree", "bin", "offered", "missing", "top"):
            body = body.replace("{" + word + "}", str(getattr(self, word)))
        path = (directory or self.bin) / name
        path.unlink(missing_ok=True)
        path.write_text(f'#!/bin/bash\necho "{name} $*" >>"{self.log}"\n{body}\n')
        path.chmod(0o755)

    def offer(self, package: str, tool: str) -> None:
        """Takes a tool away; installing `package` brings it back."""
        (self.offered / package).mkdir()
        (self.bin / tool).rename(self.offered / package / tool)

    def program(self, body: str) -> None:
        """What the fake ninja "builds"."""
        path = self.tree / "cli/program"
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)

    def environment(self) -> dict[str, str]:
        return {"PATH": str(self.bin), "HOME": str(self.top), "TERM": "dumb"}

    def start(self, *arguments, command: Path | None = None, **options) -> subprocess.Popen:
        options = {"env": self.environment(), "cwd": self.top, "stdin": subprocess.DEVNULL,
                   "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True,
                   "start_new_session": True} | options
        process = subprocess.Popen([command or self.tree / "penstock", *arguments], **options)
        self.processes.append(process)
        return process

    def run(self, *arguments, input: str | None = None, **options) -> subprocess.CompletedProcess:
        """Runs ./penstock, or `command`, to its end."""
        if input is not None:
            options["stdin"] = subprocess.PIPE
        process = self.start(*arguments, **options)
        out, err = process.communicate(input, timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def calls(self, tool: str = "") -> list[str]:
        """The calls of a fake, or of all, since the last forget(), oldest first."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line for line in lines if line.startswith(tool)]

    def forget(self) -> None:
        self.log.unlink(missing_ok=True)

    def requested_packages(self) -> set[str]:
        """What apt-get was asked to install."""
        words = [word for call in self.calls("apt-get") for word in call.split()[1:]]
        values = {"install", "update", "DPkg::Lock::Timeout=300"}
        return {word for word in words if not word.startswith("-")} - values
