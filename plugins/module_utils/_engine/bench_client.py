# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs the engine's own ``vllm bench serve`` once, and prints its result as one line of JSON. This module util is PRIVATE to the collection.

The text of this file is run in a container of the node image by its own ``python3``, with an order as its argument. The API's key is in a file, and is
copied into this process's environment, where the engine's client reads it: so no container has it in its configuration, and no process in its arguments.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import signal
import sys
import tempfile

#: Precedes the JSON, to find it in the client's other output.
MARK = "gb10-bench-result:"

#: The path of the key in the container, and the variable from which the engine's client reads it.
KEY_PATH = "/run/secrets/gb10/api_key"
KEY_VARIABLE = "OPENAI_API_KEY"


def take_key(path=KEY_PATH):
    """Have the client send the API's key, if there is one."""
    if os.path.exists(path):
        with open(path, encoding="utf-8") as stream:
            os.environ[KEY_VARIABLE] = stream.read().strip()


def check_hub(identity):
    """Exit with a message if this container has another directory than the hub cache: Docker mounts it by its name, which its owner can give to another one."""
    hub = os.path.join(os.environ["HF_HOME"], "hub")
    status = os.stat(hub)
    if [status.st_dev, status.st_ino] != identity:
        raise SystemExit("the hub cache was replaced while this container was started")


def known_options():
    """Return the options of this version's client, None if they cannot be read."""
    try:
        parser = importlib.import_module("argparse").ArgumentParser()
        importlib.import_module("vllm.benchmarks.serve").add_cli_args(parser)
    except (ImportError, AttributeError, TypeError):
        return None
    return set(parser._option_string_actions)


def wanted_options(options, known):
    """Return options as arguments, without those that this version of the client lacks."""
    return [word for name, value in options.items() if known is None or name in known for word in ([name] if value is True else [name, str(value)])]


def read_prompts_without_pandas():
    """Let the client read prompts from a file without pandas, which images for serving lack: it uses pandas only for that."""
    if importlib.util.find_spec("pandas"):
        return
    for name in ("vllm.benchmarks.datasets.datasets", "vllm.benchmarks.datasets"):
        try:
            dataset = importlib.import_module(name).CustomDataset
        except (ImportError, AttributeError):
            continue

        def load_data(self):
            with open(self.dataset_path, encoding="utf-8") as stream:
                self.data = [json.loads(line) for line in stream]

        dataset.load_data = load_data
        return


def prompts_file(texts, directory):
    """Write prompts in the client's format, and return the path of the file."""
    path = os.path.join(directory, "prompts.jsonl")
    with open(path, "w", encoding="utf-8") as stream:
        stream.writelines(json.dumps({"prompt": text}) + "\n" for text in texts)
    return path


def run(order):
    """Run the client and return its result. Raises the client's errors, including SystemExit."""
    with tempfile.TemporaryDirectory() as directory:
        arguments = [*order["arguments"], *wanted_options(order["optional"], known_options())]
        if order["texts"]:
            read_prompts_without_pandas()
            arguments += ["--dataset-path", prompts_file(order["texts"], directory)]
        sys.argv = ["vllm", "bench", "serve", *arguments, "--save-result", "--result-dir", directory, "--result-filename", "result.json"]
        importlib.import_module("vllm.entrypoints.cli.main").main()
        with open(os.path.join(directory, "result.json"), encoding="utf-8") as stream:
            return json.load(stream)


def main():
    order = json.loads(sys.argv[1])
    # The load must not continue after the play was interrupted.
    signal.alarm(order["seconds"])
    check_hub(order["hub"])
    take_key()
    sys.stdout.write("\n" + MARK + json.dumps(run(order)) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
