#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: bench_record
short_description: Keep what a bench measured, and say what became slower
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Makes a row of each case that M(gb10.cluster.engine_bench) measured, compares it with earlier rows of the same image, profile, client and case, and appends
    it to the rows in a directory of the controller.
  - A row is found slower when its tokens per second, or its median time to the first token, are worse than the median of the earlier ones by more than
    10 % and more than three times their noise, from three earlier runs on. With fewer the finding warns. Rows that were found slower, and those
    that others' requests disturbed, are kept and count for no comparison.
  - Earlier rows are never changed. A file that is none of this module's, or that was changed, is left as it is, and the task fails.
  - Runs on the controller. No node is contacted.
extends_documentation_fragment:
  - gb10.cluster._attributes
attributes:
  action:
    description: Runs on the controller.
    support: full
  check_mode:
    support: full
  diff_mode:
    support: none
options:
  results:
    description:
      - The results of a loop over M(gb10.cluster.engine_bench). One that failed becomes a finding.
    type: list
    elements: dict
    required: true
  about:
    description:
      - What all rows of the run have in common - C(run), C(time), C(cluster), C(profile), C(image), C(engine_version), C(engine_digest), C(place), C(client).
    type: dict
    required: true
  samples:
    description:
      - By node what M(gb10.cluster.gpu_samples_info) returned.
    type: dict
    default: {}
  path:
    description:
      - Directory on the controller. It holds C(bench.json), C(bench.csv) and two pictures of each run. Without it nothing is written or compared.
    type: path
    default: ""
seealso:
  - module: gb10.cluster.engine_bench
"""

EXAMPLES = r"""
- name: Keep what was measured
  gb10.cluster.bench_record:
    results: "{{ measured.results }}"
    about: "{{ planned.about }}"
    path: "{{ playbook_dir }}/benches"
"""

RETURN = r"""
rows:
  description: The rows of this run.
  returned: always
  type: list
  elements: dict
  sample: [{"run": "20261123T150000Z", "profile": "lab_tiny_tp2", "workload": "random", "concurrency": 1, "output_tok_s": 62.1}]
findings:
  description: What was not measured, became slower, or was disturbed.
  returned: success
  type: list
  elements: dict
  sample: []
files:
  description: The files that were written.
  returned: success
  type: list
  elements: str
  sample: [benches/bench.json, benches/bench.csv]
table:
  description: The rows as lines for people.
  returned: success
  type: list
  elements: str
  sample: ["case  tokens/s"]
"""
