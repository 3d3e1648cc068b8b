# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Put pip into an empty virtual environment from a wheel on disk, in the place of get-pip.py.

ansible-test downloads get-pip.py from a host of its own, which not every network reaches. Kept as
``get_pip_<version>.py`` with the wheel of that pip beside it, this answers the same command line.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve()
VERSION = HERE.stem.removeprefix("get_pip_").replace("_", ".")
WHEEL = HERE.with_name(f"pip-{VERSION}-py3-none-any.whl")

#: What get-pip.py installs besides pip unless told not to.
COMPANIONS = {"--no-setuptools": "setuptools", "--no-wheel": "wheel"}


def main() -> int:
    """Run the wheel's own pip to install itself, and what else the command line names; return its exit code."""
    given = sys.argv[1:]
    packages = [name for flag, name in COMPANIONS.items() if flag not in given]
    options = [argument for argument in given if argument not in COMPANIONS]
    sys.path.insert(0, str(WHEEL))
    from pip._internal.cli.main import main as pip

    return pip(["install", "--force-reinstall", str(WHEEL), *options, *packages])


if __name__ == "__main__":
    sys.exit(main())
