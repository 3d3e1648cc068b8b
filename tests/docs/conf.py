# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How Sphinx makes pages of what build.py put together. Needs no network."""

from __future__ import annotations

import re
import typing as t

from docutils import nodes

project = "gb10.cluster"
copyright = "gb10.cluster contributors, GPL-3.0-or-later"
extensions = ["myst_parser", "sphinx_antsibull_ext"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
root_doc = "index"

# Anchors of headings as GitHub makes them, so that a link works on both.
myst_heading_anchors = 4

# A block without a language is output: nothing is coloured in it.
highlight_language = "none"
pygments_style = "ansible"

html_theme = "sphinx_ansible_theme"
html_title = "gb10.cluster"
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"collapse_navigation": False}

#: Collections whose plugins our pages name. Their pages are elsewhere; a name of any other collection is a mistake.
ELSEWHERE = {"ansible.builtin", "ansible.posix", "community.docker"}
_PLUGIN = re.compile(r"ansible_collections\.(?P<namespace>\w+)\.(?P<collection>\w+)\.(?P<plugin>\w+?)_(?P<kind>module|filter|lookup|role|test|connection)")


def link_elsewhere(app: t.Any, env: t.Any, node: t.Any, contnode: t.Any) -> nodes.reference | None:
    """Link a plugin of another collection to Ansible's own documentation; None leaves the reference unresolved, which is a warning."""
    match = _PLUGIN.match(node.get("reftarget", ""))
    if match is None or f"{match['namespace']}.{match['collection']}" not in ELSEWHERE:
        return None
    page = "/".join((match["namespace"], match["collection"], f"{match['plugin']}_{match['kind']}.html"))
    return nodes.reference("", "", contnode, internal=False, refuri=f"https://docs.ansible.com/ansible/latest/collections/{page}")


def setup(app: t.Any) -> None:
    app.connect("missing-reference", link_elsewhere)
