#!/usr/bin/env python3
"""penstock tokenize: what it writes for texts, JSON lines and chats, and how it refuses what it cannot read.

    tokenize_verb_test.py PENSTOCK
"""
import json
import os
import subprocess
import sys
import tempfile

from token_bytes import TokenBytes

CHATML = "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"


def tokenizer_json():
    """Byte-level, with one token for each printable ASCII character, "Ċ" for a line break, and the words of ChatML."""
    characters = [chr(code) for code in range(0x21, 0x7f)] + ["Ġ", "Ċ", "ï", "¿", "½"]
    vocabulary = {character: number for number, character in enumerate(characters)}
    added = [{"id": len(vocabulary) + number, "content": content, "single_word": False, "lstrip": False,
              "rstrip": False, "normalized": False, "special": True}
             for number, content in enumerate(["<|im_start|>", "<|im_end|>"])]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
            "model": {"type": "BPE", "vocab": vocabulary, "merges": []}}


class Case:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.model = self.path("model")
        os.makedirs(self.model)
        self.vocabulary = tokenizer_json()["model"]["vocab"]
        self.end = len(self.vocabulary) + 1
        self.write("model/tokenizer.json", json.dumps(tokenizer_json()))
        self.write("model/tokenizer_config.json", json.dumps({"eos_token": "<|im_end|>", "chat_template": CHATML}))

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, content):
        with open(self.path(name), "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        return self.path(name)

    def run(self, *arguments):
        return subprocess.run([self.program, "tokenize", *arguments], capture_output=True, text=True, timeout=60)

    def tokens(self, *inputs, flags=()):
        """What is written for the inputs, and the line that is printed."""
        output = self.path("out.tokens")
        done = self.run("--model", "hf:" + self.model, "--output", output, *flags, *inputs)
        assert done.returncode == 0 and not done.stderr, done.stderr
        return TokenBytes(output), done.stdout.strip()

    def ids(self, text):
        return [self.vocabulary["Ġ" if c == " " else "Ċ" if c == "\n" else c] for c in text]

    def refused(self, *expected, inputs=(), arguments=None):
        output = self.path("refused.tokens")
        arguments = ["--tokenizer", self.model] if arguments is None else arguments
        done = self.run(*arguments, "--output", output, *inputs)
        lines = done.stderr.strip().split("\n")
        assert done.returncode == 2 and len(lines) == 1, (done.returncode, done.stderr)
        assert all(part in lines[0] for part in expected), (lines[0], expected)
        assert not [name for name in os.listdir(self.folder) if name.startswith("refused")], os.listdir(self.folder)


def check_texts(case):
    text = case.write("a.txt", "ab c\n")
    lines = case.write("b.jsonl", b'{"text": "d", "more": [1]}\n\n{"text": "e<|im_end|>"}\n{"text": "\xff"}\n')
    file, line = case.tokens(text, lines)
    assert file.documents() == [[*case.ids("ab c\n"), case.end], [*case.ids("d"), case.end],
                                [*case.ids("e"), case.end], [*case.ids("ï¿½"), case.end]], file.documents()
    assert file.flags is None and file.width == 2 and file.vocabulary == case.end + 1
    assert line.endswith("out.tokens: 4 documents, 14 tokens of 2 bytes, 14 of them targets of the loss"), line
    assert case.tokens(text, flags=["--end-token", "none"])[0].tokens == case.ids("ab c\n")
    assert case.tokens(text, flags=["--end-token", "!"])[0].tokens == case.ids("ab c\n!")
    assert case.tokens(text, flags=["--format", "text"])[0].tokens == [*case.ids("ab c\n"), case.end]


def check_chats(case):
    messages = [{"role": "user", "content": "a b"}, {"role": "assistant", "content": "c"}]
    file, line = case.tokens(case.write("chat.jsonl", json.dumps({"messages": messages}) + '\n{"text": "d"}'))
    start = case.end - 1
    expected = [start, *case.ids("user\na b"), case.end, *case.ids("\n"), start, *case.ids("assistant\nc"), case.end,
                *case.ids("\n")]
    assert file.documents() == [expected, [*case.ids("d"), case.end]], file.documents()
    learned = [token for token, flag in zip(file.tokens, file.flags) if flag]
    assert learned == [*case.ids("c"), case.end, *case.ids("d"), case.end], learned
    assert "4 of them" in line, line


def check_refusals(case):
    text = case.write("text.txt", "a")
    case.refused("either --model hf:DIR or --tokenizer DIR", inputs=[text], arguments=[])
    case.refused("--model mlp has no tokenizer", inputs=[text], arguments=["--model", "mlp"])
    case.refused("--end-token none such", "in the vocabulary", inputs=[text],
                 arguments=["--tokenizer", case.model, "--end-token", "none such"])
    case.refused("nothing.txt", inputs=[case.path("nothing.txt")])
    case.refused("no text in the input", inputs=[case.write("empty.jsonl", "\n")])
    case.refused("cut.jsonl: line 2: the line is not JSON", "breaks off",
                 inputs=[case.write("cut.jsonl", '{"text": "a"}\n{"text"')])
    case.refused("line 1: the line has neither a member 'text' nor 'messages'",
                 inputs=[case.write("other.jsonl", '{"prompt": "a"}')])
    case.refused("line 1: the line's messages[0] has no member 'content'",
                 inputs=[case.write("part.jsonl", '{"messages": [{"role": "user"}]}')])
    damaged = case.path("damaged")
    os.makedirs(damaged)
    model = tokenizer_json()
    model["model"]["merges"] = ["a zz"]
    case.write("damaged/tokenizer.json", json.dumps(model))
    case.refused("damaged/tokenizer.json: the tokenizer's model.merges[0] uses 'zz'", inputs=[text],
                 arguments=["--model", "hf:" + damaged])
    case.write("damaged/tokenizer.json", json.dumps(tokenizer_json()))
    chat = case.write("chat2.jsonl", '{"messages": [{"role": "user", "content": "a"}]}')
    case.refused("the chat template of the tokenizer is missing", inputs=[chat], arguments=["--tokenizer", damaged])


def main():
    for check in (check_texts, check_chats, check_refusals):
        with tempfile.TemporaryDirectory() as folder:
            check(Case(sys.argv[1], folder))
    print("tokenize: texts, chats, refusals")


if __name__ == "__main__":
    main()
