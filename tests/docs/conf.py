# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The settings of Sphinx for the pages that build.py writes. Needs no network."""

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

# A block without a language is output: nothing is colored in it.
highlight_language = "none"
# What is shown is what is typed, quotes included.
smartquotes = False
pygments_style = "ansible"

html_theme = "sphinx_ansible_theme"
html_title = "gb10.cluster"
html_show_sphinx = False
html_copy_source = False
# The theme's own links at the top lead to Ansible's blog, forum and documentation.
html_theme_options = {"collapse_navigation": False, "documentation_home_url": "https://docs.ansible.com/", "show_extranav": False, "topbar_links": {}}

#: Collections whose plugins our pages name. Their pages are elsewhere; a name of any other collection is a mistake.
ELSEWHERE = {"ansible.builtin", "community.docker"}
#: Chapters of Ansible's own documentation that the reference names, by label.
CHAPTERS = {
    "action_plugins": "plugins/action.html#action-plugins",
    "ansible_configuration_settings": "reference_appendices/config.html#ansible-configuration-settings",
    "common_return_values": "reference_appendices/common_return_values.html#common-return-values",
}
ANSIBLE_DOCS = "https://docs.ansible.com/ansible/latest"
_PLUGIN = re.compile(r"ansible_collections\.(?P<namespace>\w+)\.(?P<collection>\w+)\.(?P<plugin>\w+?)_(?P<kind>module|filter|lookup|role|test|connection)")


def link_elsewhere(app: t.Any, env: t.Any, node: t.Any, contnode: t.Any) -> nodes.reference | None:
    """Link what Ansible's own documentation has; None leaves the reference unresolved, which is a warning."""
    target = node.get("reftarget", "")
    match = _PLUGIN.match(target)
    if match and f"{match['namespace']}.{match['collection']}" in ELSEWHERE:
        page = "/".join(("collections", match["namespace"], match["collection"], f"{match['plugin']}_{match['kind']}.html"))
    elif target in CHAPTERS:
        page = CHAPTERS[target]
    else:
        return None
    return nodes.reference("", "", contnode, internal=False, refuri=f"{ANSIBLE_DOCS}/{page}")


def setup(app: t.Any) -> None:
    app.connect("missing-reference", link_elsewhere)
