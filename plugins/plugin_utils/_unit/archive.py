# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program of an engine's unit as one file, made of the collection and ansible-core on the controller. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

from ansible_collections.gb10.cluster.plugins.module_utils._systemd import zip_program
from ansible_collections.gb10.cluster.plugins.module_utils._unit import program, specification, steps

#: What ansible-core reads a module's arguments and writes its result with. It imports them by name when a module runs.
_JSON = ("ansible.module_utils._internal._json._profiles._module_legacy_c2m", "ansible.module_utils._internal._json._profiles._module_legacy_m2c")

_MAIN = f"from {program.__name__} import main\nraise SystemExit(main())\n"


def content() -> bytes:
    """Return the program: an archive that Python runs, with the modules that its steps run. Raises UnknownState when a source is missing."""
    names = [program.__name__, *(f"{steps.MODULES}.{name}" for name in specification.MODULES), *_JSON]
    return zip_program.pack(_MAIN, zip_program.sources(names, (zip_program.OWN, zip_program.ANSIBLE)))
