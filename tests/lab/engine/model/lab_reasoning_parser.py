# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A vLLM reasoning-parser plugin, lying beside the weights as Nemotron's does; registers the name ``lab_think``.

    vllm serve … --reasoning-parser-plugin SNAPSHOT/lab_reasoning_parser.py --reasoning-parser lab_think
"""

from __future__ import annotations

import typing as t

from vllm.reasoning import ReasoningParserManager
from vllm.reasoning.basic_parsers import BaseThinkingReasoningParser


@ReasoningParserManager.register_module(name="lab_think")
class LabThinkParser(BaseThinkingReasoningParser):
    """What stands between <think> and </think> is reasoning; output without either is content, not unfinished thought."""

    @property
    def start_token(self) -> str:
        return "<think>"

    @property
    def end_token(self) -> str:
        return "</think>"

    def extract_reasoning(self, model_output: str, request: t.Any) -> tuple[str | None, str | None]:
        """Split a whole answer into reasoning and content."""
        if self.start_token not in model_output and self.end_token not in model_output:
            return None, model_output
        return super().extract_reasoning(model_output, request)
