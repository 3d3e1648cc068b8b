# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What leaves a node carries no secret."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._redact import known_secrets, redacted, shown_value

KEY = "Zk3v9PqL0aWb7"


def test_known_values_go_wherever_they_stand():
    text = f"api_key='{KEY}' then {KEY}{KEY} and x{KEY}y"
    assert redacted(text, {"api_key": KEY}) == "api_key='<secret api_key>' then <secret api_key><secret api_key> and x<secret api_key>y"


def test_a_secret_within_another_leaves_no_rest():
    assert redacted("abcdefgh-long", {"short": "abcdefgh", "long": "abcdefgh-long"}) == "<secret long>"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("token hf_abcdefghijklmnopqrstuv here", "token hf_<secret> here"),
        ("Authorization: Bearer abcdefghijk", "Authorization: Bearer <secret>"),
        ('"VLLM_API_KEY=abc123",', '"VLLM_API_KEY=<secret>",'),
        ("HF_TOKEN=x", "HF_TOKEN=<secret>"),
        ("vllm serve m --api-key abc --port 1", "vllm serve m --api-key <secret> --port 1"),
        ("vllm serve m --hf-token=abc", "vllm serve m --hf-token=<secret>"),
        ("['serve', '--api-key', 'abc']", "['serve', '--api-key', '<secret>']"),
        ("key sk-abcdefghijklmnop12 and nvapi-abcdefghijklmnop12", "key sk-<secret> and nvapi-<secret>"),
        ("http://user:hunter2@proxy:3128/x", "http://user:<secret>@proxy:3128/x"),
    ],
)
def test_what_looks_like_a_secret_goes(text, expected):
    assert redacted(text, {}) == expected


@pytest.mark.parametrize(
    "text",
    ["max_tokens=2048", "generation_tokens_total 17", "--tokenizer=gb10/tiny", "hf_overrides", "--max-num-batched-tokens 2048", "--api-key --port 1", "http://h:80/a@b", "RAY_AUTH_TOKEN_PATH=/run/secrets/gb10/ray_token"],
)
def test_what_is_none_stays(text):
    assert redacted(text, {}) == text


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("HF_TOKEN", "x", "<secret>"),
        ("VLLM_API_KEY", "abc", "<secret>"),
        ("S3_SECRET_ACCESS_KEY", "abc", "<secret>"),
        ("HF_TOKEN", "", ""),
        ("RAY_AUTH_TOKEN_PATH", "/run/x", "/run/x"),
        ("TOKENIZERS_PARALLELISM", "false", "false"),
        ("VLLM_LOG", "hf_abcdefghijklmnopqrstuv", "hf_<secret>"),
    ],
)
def test_variables_are_shown_without_secrets(name, value, shown):
    assert shown_value(name, value) == shown


def test_secrets_are_read_from_their_directory(tmp_path):
    (tmp_path / "api_key").write_text(f"{KEY}\n")
    (tmp_path / "short").write_text("abc")
    (tmp_path / "folder").mkdir()
    assert known_secrets(str(tmp_path)) == {"api_key": KEY}
    assert known_secrets(str(tmp_path / "absent")) == {}


def test_a_directory_that_cannot_be_read_stops_everything(tmp_path, monkeypatch):
    def denied(path):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("os.listdir", denied)
    with pytest.raises(ClusterError, match="Permission denied"):
        known_secrets(str(tmp_path))
