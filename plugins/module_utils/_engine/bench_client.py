# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The engine's own ``vllm bench serve``, run once, its result as one line of JSON. This module util is PRIVATE to the collection.

The text of this file is run in a container of the node image by its own ``python3``, with an order as its argument. The API's key comes in a file and
goes into this process's own variables, where the engine's client looks for it: no container has it in its configuration, and no process in its arguments.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import signal
import sys
import tempfile

#: Stands before the JSON, so that other output of the client does no harm.
MARK = "gb10-bench-result:"

#: Where the container has the key, and the variable that the engine's client reads it from.
KEY_PATH = "/run/secrets/gb10/api_key"
KEY_VARIABLE = "OPENAI_API_KEY"


def take_key(path=KEY_PATH):
    """Have the client send the API's key, where there is one."""
    if os.path.exists(path):
        with open(path, encoding="utf-8") as stream:
            os.environ[KEY_VARIABLE] = stream.read().strip()


def check_hub(identity):
    """End with a message where this container got another directory than the hub cache: Docker finds it by its name, which its owner may give to another."""
    hub = os.path.join(os.environ["HF_HOME"], "hub")
    status = os.stat(hub)
    if [status.st_dev, status.st_ino] != identity:
        raise SystemExit("the hub cache was replaced while this container was started")


def known_options():
    """Return the options of this version's client, None where it does not say."""
    try:
        parser = importlib.import_module("argparse").ArgumentParser()
        importlib.import_module("vllm.benchmarks.serve").add_cli_args(parser)
    except (ImportError, AttributeError, TypeError):
        return None
    return set(parser._option_string_actions)


def wanted_options(options, known):
    """Return options that an older version may lack as arguments, without those that it lacks."""
    return [word for name, value in options.items() if known is None or name in known for word in ([name] if value is True else [name, str(value)])]


def read_prompts_without_pandas():
    """Let the client read prompts from a file although the image lacks pandas, as images for serving do: it wants nothing of it but that."""
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
    """Write prompts as the client reads them, and return where."""
    path = os.path.join(directory, "prompts.jsonl")
    with open(path, "w", encoding="utf-8") as stream:
        stream.writelines(json.dumps({"prompt": text}) + "\n" for text in texts)
    return path


def run(order):
    """Run the client and return its result. Raises what the client raises, SystemExit among it."""
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
    # No load continues after a play that was interrupted.
    signal.alarm(order["seconds"])
    check_hub(order["hub"])
    take_key()
    sys.stdout.write("\n" + MARK + json.dumps(run(order)) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
