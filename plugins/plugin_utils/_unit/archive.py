# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program of an engine's unit as one file, made of the collection on the controller. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

from ansible_collections.gb10.cluster.plugins.module_utils._systemd import zip_program
from ansible_collections.gb10.cluster.plugins.module_utils._unit import program, specification, steps, without_ansible

_MAIN = f"from {program.__name__} import main\nraise SystemExit(main())\n"


def content() -> bytes:
    """Return the program: an archive that Python runs, with the modules that its steps run. Raises UnknownState when a source is missing."""
    found = zip_program.sources([program.__name__, without_ansible.__name__, *(f"{steps.MODULES}.{name}" for name in specification.MODULES)])
    return zip_program.pack(_MAIN, {**found, "ansible.module_utils.basic": found[without_ansible.__name__]})
