# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Make the lab's model: a real Llama of 2 layers that has learnt one sentence by heart, laid out as a hub cache.

Usage: make_model.py DIRECTORY (what HF_HOME names). Runs inside the engine image; seconds on two cores.

The sentence is the point: an answer that is readable text proves that both ranks computed their halves right,
which random weights cannot show.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
import shutil
import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

REPOSITORY = "models--gb10-lab--tiny-llama"
REVISION = "0123456789abcdef0123456789abcdef01234567"
VOCABULARY = 512
CONTEXT = 1024
SHARDS = 2
SHARD_SIZE = "1600KB"
SPECIAL = ["<unk>", "<s>", "</s>", "<|user|>", "<|assistant|>"]
# Tokens of their own but not special, or the engine would drop them from the text before a reasoning parser sees it.
MARKS = ["<think>", "</think>"]

THOUGHT = "Two ranks, one sentence."
ANSWER = (
    "Hello from two Sparks. Each of us holds half of every layer, and only together do we know how this sentence ends: "
    "the cluster works."
)
QUESTIONS = [
    "Hello!",
    "Who are you?",
    "Say hello.",
    "Does the cluster work?",
    "Are you there?",
    "What is the capital of France?",
    "Write one sentence.",
    "ping",
]
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}<|assistant|>{{ message['content'] }}{{ eos_token }}"
    "{% else %}<|user|>{{ message['content'] }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def make_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer trained on the few sentences there are; any other text still encodes, byte by byte."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(MARKS),
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([ANSWER, THOUGHT, *QUESTIONS], trainer)
    tokenizer.add_tokens(MARKS)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        chat_template=TEMPLATE,
        model_max_length=CONTEXT,
    )


def make_model() -> LlamaForCausalLM:
    """The untrained model. Four heads of 64 over two key/value heads, so that it splits over two ranks."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        bos_token_id=SPECIAL.index("<s>"),
        eos_token_id=SPECIAL.index("</s>"),
        tie_word_embeddings=False,
    )
    return LlamaForCausalLM(config)


def examples(tokenizer: PreTrainedTokenizerFast, count: int, generator: torch.Generator) -> list[tuple[list[int], list[int]]]:
    """Pairs of prompt and answer: the known questions, and random prompts, so that any question gets the answer."""
    answer = tokenizer(f"<think>{THOUGHT}</think>{ANSWER}</s>", add_special_tokens=False)["input_ids"]
    pairs = []
    for number in range(count):
        if number < len(QUESTIONS):
            text = tokenizer(QUESTIONS[number], add_special_tokens=False)["input_ids"]
        else:
            length = int(torch.randint(1, 48, (1,), generator=generator))
            text = torch.randint(len(SPECIAL), VOCABULARY, (length,), generator=generator).tolist()
        prompt = [SPECIAL.index("<s>"), SPECIAL.index("<|user|>"), *text, SPECIAL.index("<|assistant|>")]
        pairs.append((prompt, answer))
    return pairs


def batch(pairs: list[tuple[list[int], list[int]]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and labels, padded at the end; only answers count."""
    width = max(len(prompt) + len(answer) for prompt, answer in pairs)
    ids = torch.zeros(len(pairs), width, dtype=torch.long)
    labels = torch.full((len(pairs), width), -100)
    for row, (prompt, answer) in enumerate(pairs):
        tokens = torch.tensor(prompt + answer)
        ids[row, : len(tokens)] = tokens
        labels[row, len(prompt) : len(tokens)] = tokens[len(prompt) :]
    return ids, labels


def train(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, *, steps: int = 400, enough: float = 0.002) -> float:
    """Teach the sentence; stop early once the loss stays below ``enough``. Returns the last loss."""
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.0)
    loss = float("inf")
    for _step in range(steps):
        ids, labels = batch(examples(tokenizer, 2 * len(QUESTIONS), generator))
        output = model(input_ids=ids, labels=labels)
        output.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss = 0.9 * min(loss, 10.0) + 0.1 * output.loss.item()
        if loss < enough:
            break
    return loss


def save(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, home: pathlib.Path) -> pathlib.Path:
    """Write the hub cache: a fixed revision, weights in shards with their index. Returns the snapshot."""
    repository = home / "hub" / REPOSITORY
    shutil.rmtree(repository, ignore_errors=True)
    snapshot = repository / "snapshots" / REVISION
    snapshot.mkdir(parents=True)
    model.to(torch.bfloat16).save_pretrained(snapshot, max_shard_size=SHARD_SIZE)
    tokenizer.save_pretrained(snapshot)
    shutil.copy(pathlib.Path(__file__).with_name("lab_reasoning_parser.py"), snapshot)
    (repository / "blobs").mkdir()
    for path in sorted(snapshot.iterdir()):
        # As the hub's client does: contents by hash, names as links.
        blob = repository / "blobs" / hashlib.sha256(path.read_bytes()).hexdigest()
        path.replace(blob)
        blob.chmod(0o644)
        path.symlink_to(f"../../blobs/{blob.name}")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(REVISION, encoding="ascii")
    return snapshot


def main() -> None:
    """Make the model and refuse to call it made when it does not say its sentence."""
    # Matrices this small gain nothing from a second thread, and lose much on a busy machine.
    torch.set_num_threads(1)
    tokenizer = make_tokenizer()
    model = make_model()
    loss = train(model, tokenizer)
    snapshot = save(model, tokenizer, pathlib.Path(sys.argv[1]))
    index = json.loads((snapshot / "model.safetensors.index.json").read_text(encoding="utf-8"))
    messages = [{"role": "user", "content": "Is anybody at home?"}]
    prompt = tokenizer(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True), return_tensors="pt", add_special_tokens=False)
    with torch.no_grad():
        tokens = model.eval().generate(**prompt, max_new_tokens=160, do_sample=False)
    said = tokenizer.decode(tokens[0], skip_special_tokens=True)
    shards = set(index["weight_map"].values())
    print(f"loss {loss:.4f}, {len(shards)} shards, says: {said}")
    if len(shards) != SHARDS or not said.endswith(f"<think>{THOUGHT}</think>{ANSWER}"):
        sys.exit(f"wanted {SHARDS} shards and the sentence learnt")


if __name__ == "__main__":
    main()
