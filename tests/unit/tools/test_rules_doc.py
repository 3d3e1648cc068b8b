# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The page about the rules is made from the rules."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
spec = importlib.util.spec_from_file_location("rules_doc", ROOT / "tests" / "tools" / "rules_doc.py")
rules_doc = importlib.util.module_from_spec(spec)
spec.loader.exec_module(rules_doc)


def test_the_page_about_the_doctor_is_current():
    assert rules_doc.DOCTOR_PAGE.read_text(encoding="utf-8") == rules_doc.doctor_page(), "run tests/tools/rules_doc.py"


def test_the_page_about_signatures_is_current():
    assert rules_doc.SIGNATURES_PAGE.read_text(encoding="utf-8") == rules_doc.signatures_page(), "run tests/tools/rules_doc.py"


def test_the_page_is_current():
    assert rules_doc.PAGE.read_text(encoding="utf-8") == rules_doc.page(), "run tests/tools/rules_doc.py"
