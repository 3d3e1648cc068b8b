# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run ansible-test sanity of the environment this Python belongs to, on a copy of the tree; arguments go to ansible-test.

ansible-test wants the collection to lie in ansible_collections/NAMESPACE/NAME for real, and to be a git repository. The
copy is recreated under .cache/sanity/ each time.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import types
import urllib.error
import urllib.request
from pathlib import Path

from ansible.release import __version__ as core_version
from ansible_test._internal.python_requirements import get_venv_packages

ROOT = Path(__file__).resolve().parents[2]
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
GET_PIP_URL = "https://ci-files.testing.ansible.com/ansible-test/get-pip-{version}.py"
#: Where ansible-test looks for get-pip.py before it downloads it.
GET_PIP_CACHE = Path("~/.ansible/test/cache").expanduser()
#: Seconds to wait for the download host.
REACH_TIMEOUT = 10


def export_tree(target: Path) -> None:
    """Make ``target`` a git repository of exactly the files that git tracks or would track here, without collections/."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True, timeout=60,
    )
    if target.exists():
        shutil.rmtree(target)
    for name in listing.stdout.split("\0"):
        source = ROOT / name
        if name.startswith("collections/") or not source.is_file():
            continue
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target / name, follow_symlinks=False)
    for command in (["git", "init", "--quiet"], ["git", "add", "--all"]):
        subprocess.run(command, cwd=target, check=True, timeout=60)


def provide_get_pip() -> None:
    """When the host of get-pip.py cannot be reached, put a stand-in and pip's wheel where ansible-test looks first."""
    version = get_venv_packages(types.SimpleNamespace(version=PYTHON))["pip"]
    script = GET_PIP_CACHE / f"get_pip_{version.replace('.', '_')}.py"
    if script.exists():
        return
    try:
        urllib.request.urlopen(GET_PIP_URL.format(version=version), timeout=REACH_TIMEOUT).close()
    except urllib.error.HTTPError as error:
        print(f"{error.url} answers {error.code}")
    except OSError as error:
        print(f"The download host of get-pip.py cannot be reached ({error}); taking pip {version} from the package index.")
    else:
        return
    GET_PIP_CACHE.mkdir(parents=True, exist_ok=True)
    pip_download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(GET_PIP_CACHE), f"pip=={version}"]
    subprocess.run(pip_download, check=True, timeout=300)
    shutil.copy(ROOT / "tests" / "tools" / "get_pip_offline.py", script)


def main() -> int:
    """Prepare the copy, run ansible-test in it, and return its exit code."""
    target = ROOT / ".cache" / "sanity" / core_version / "ansible_collections" / "gb10" / "cluster"
    export_tree(target)
    provide_get_pip()
    command = ["ansible-test", "sanity", "--python", PYTHON, "--color", "no", *sys.argv[1:]]
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(command, cwd=target, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
