# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A variable of several hosts."""

from __future__ import annotations


def by_host(hosts, hostvars, name, default=None):
    """Return the value of a variable on each host that has it, and a default for the others where one is given."""
    return {host: hostvars[host][name] if name in hostvars[host] else default for host in hosts if name in hostvars[host] or default is not None}


class FilterModule:
    """Filters of the collection."""

    def filters(self):
        return {"by_host": by_host}
