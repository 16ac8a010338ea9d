# SPDX-License-Identifier: Apache-2.0
"""A root folder of its own: a package, the libraries of the packages that it depends on, and bash.

Nothing else is in it, neither the sources nor the build. Programs run there by chroot in a mount
namespace, with /proc (where a program finds where it lies) and /dev of this machine.
"""

import os
import pathlib
import re
import shutil
import subprocess

# Who is not root becomes it in a user namespace, where the kernel allows that.
NAMESPACE = ["unshare", "--mount"] if os.geteuid() == 0 else \
    ["unshare", "--map-root-user", "--mount"]
ENTER = 'mount --rbind /proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"'
TOOLS_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
HOME = "/home/someone"


def why_impossible():
    """Why there can be no such root here; empty: there can."""
    for tool in ("unshare", "chroot", "dpkg", "dpkg-query"):
        if shutil.which(tool, path=TOOLS_PATH) is None:
            return f"{tool} is not installed"
    probe = subprocess.run([*NAMESPACE, "sh", "-c", "mount --rbind /proc /mnt"], text=True,
                           capture_output=True)
    return probe.stderr.strip() and f"it needs root or a user namespace: {probe.stderr.strip()}"


def names_in(relations):
    """Packages of a Depends field, of alternatives the first."""
    return [re.match(r"[\w.+-]+", part.strip())[0] for part in relations.split(",") if part.strip()]


def closure(names):
    """The packages and all that they depend on, of those that are installed here."""
    found, left = set(), list(names)
    while left:
        name = left.pop()
        if name in found:
            continue
        asked = subprocess.run(["dpkg-query", "-W", "-f=${Depends}, ${Pre-Depends}", name],
                               text=True, capture_output=True)
        if asked.returncode == 0:
            found.add(name)
            left += names_in(asked.stdout)
    return found


class FreshRoot:
    def __init__(self, path):
        self.path = pathlib.Path(path)
        for folder in ("var/lib/dpkg/info", "var/lib/dpkg/updates", "usr/bin", "usr/lib",
                       "usr/lib64", "tmp", "proc", "dev", HOME[1:]):
            (self.path / folder).mkdir(parents=True)
        for name in ("bin", "lib", "lib64"):
            (self.path / name).symlink_to(f"usr/{name}")
        (self.path / "var/lib/dpkg/status").touch()

    def dpkg(self, *arguments):
        # --force-depends: what the package depends on comes as files, dpkg knows nothing of it.
        done = subprocess.run([*NAMESPACE, "dpkg", f"--root={self.path}", "--force-depends",
                               f"--log={self.path}/var/lib/dpkg/log", *arguments],
                              env=os.environ | {"PATH": TOOLS_PATH, "LC_ALL": "C"}, text=True,
                              capture_output=True, timeout=120)
        if done.returncode:
            raise RuntimeError(f"dpkg {arguments}: {done.stdout}{done.stderr}")

    def add_libraries_of(self, names):
        """So a library that no dependency names is missing."""
        for name in closure(names):
            files = subprocess.run(["dpkg-query", "-L", name], text=True, capture_output=True)
            for file in files.stdout.splitlines():
                if re.search(r"\.so(\.|$)", file) and not os.path.isdir(file):
                    self.add_file(file)

    def add_file(self, file):
        inside = self.path / file[1:]
        inside.parent.mkdir(parents=True, exist_ok=True)
        if not inside.exists():
            shutil.copy(file, inside, follow_symlinks=False)

    def add_bash(self):
        self.add_libraries_of(["bash"])
        self.add_file("/bin/bash")

    def run(self, *command):
        """The finished process, which began in the home of somebody who has nothing."""
        return subprocess.run(
            [*NAMESPACE, "sh", "-c", ENTER, str(self.path), "/bin/bash", "-c",
             'cd "$0" && exec "$@"', HOME, *command],
            env={"PATH": TOOLS_PATH, "HOME": HOME, "LC_ALL": "C"}, text=True,
            capture_output=True, stdin=subprocess.DEVNULL, timeout=120)
