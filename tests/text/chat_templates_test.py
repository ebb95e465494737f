#!/usr/bin/env python3
"""penstock tokenize renders chats as transformers' apply_chat_template does, and learns the answers only.

    chat_templates_test.py PENSTOCK

The template of SmolLM2 is in its directory if tools/fetch_smollm2.py has written it. Skipped without transformers.
"""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import torch_python  # noqa: E402

torch_python.run_with("tokenizers transformers")

import tokenizers  # noqa: E402
import transformers  # noqa: E402
from tokenizers import decoders, models, pre_tokenizers, trainers  # noqa: E402

from token_bytes import TokenBytes  # noqa: E402

SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
           "<|eot_id|>", "[INST]", "[/INST]"]


def flat(template):
    """Without its line breaks, which stand here for the width of the page."""
    return template.replace("\n", "")


CHATML = flat("""
{% for message in messages %}
{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}""").replace("\\n", "\n")
QWEN2 = flat("""
{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}
{{ '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}{% endif %}
{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}""")
QWEN25 = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are Qwen, created by Alibaba Cloud. You are a helpful assistant.' }}
    {%- endif %}
    {{- "\\n\\n# Tools\\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or
           (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
LLAMA2 = flat("""
{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}
{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}
{% set system_message = false %}{% endif %}{% for message in loop_messages %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}
{% if loop.index0 == 0 and system_message != false %}
{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}
{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}
{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}
{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}""")
LLAMA3 = flat("""
{% set loop_messages = messages %}{% for message in loop_messages %}
{% set content = '<|start_header_id|>' + message['role']
 + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}
{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}
{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}""").replace("\\n", "\n")
LLAMA31 = """{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{{- "Cutting Knowledge Date: December 2023\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
LLAMA32 = LLAMA31.replace('{%- set date_string = "26 Jul 2024" %}', """{%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- endif %}""")
MISTRAL1 = flat("""
{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}
{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}
{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token + ' ' }}{% else %}
{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}""")
MISTRAL2 = """{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}

{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message['role'] == 'user' %}
        {%- if loop.first and system_message is defined %}
            {{- ' [INST] ' + system_message + '\\n\\n' + message['content'] + ' [/INST]' }}
        {%- else %}
            {{- ' [INST] ' + message['content'] + ' [/INST]' }}
        {%- endif %}
    {%- elif message['role'] == 'assistant' %}
        {{- ' ' + message['content'] + eos_token}}
    {%- endif %}
{%- endfor %}
"""
MISTRAL3 = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- endif %}
{%- endfor %}
"""

# The template, the tokens that begin and end a text, and whether a chat may begin with a system message.
FORMATS = {"chatml": (CHATML, "<s>", "<|im_end|>", True), "qwen2": (QWEN2, "<s>", "<|im_end|>", True),
           "qwen25": (QWEN25, "<s>", "<|im_end|>", True), "llama2": (LLAMA2, "<s>", "</s>", True),
           "llama3": (LLAMA3, "<|begin_of_text|>", "<|eot_id|>", True),
           "llama31": (LLAMA31, "<|begin_of_text|>", "<|eot_id|>", True),
           "llama32": (LLAMA32, "<|begin_of_text|>", "<|eot_id|>", True), "mistral1": (MISTRAL1, "<s>", "</s>", False),
           "mistral2": (MISTRAL2, "<s>", "</s>", True), "mistral3": (MISTRAL3, "<s>", "</s>", True)}

TURNS = [{"role": "user", "content": "  What is\n a pipeline? "},
         {"role": "assistant", "content": "\nStages.  In a row "},
         {"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Für mehr Platz 😀"}]
SYSTEM = {"role": "system", "content": " Answer\n\nbriefly.\u00a0"}
CHATS = [TURNS, TURNS[:2], [SYSTEM, *TURNS], [SYSTEM, *TURNS[:3]]]


def make_tokenizer(directory, name):
    """A byte-level tokenizer with merges of white space and of the words above."""
    template, bos, eos, _ = FORMATS[name]
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    texts = [message["content"] for message in [SYSTEM, *TURNS]] + ["assistant\n\n\nuser\n\n", "system\n"] * 4
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=400, special_tokens=SPECIAL, show_progress=False, min_frequency=2,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=bos, eos_token=eos)
    fast.chat_template = template
    fast.save_pretrained(directory)
    return fast


def answers_of(messages, name):
    """What is to be learned: the contents of the assistant, with what the format writes around them."""
    contents = [message["content"] for message in messages if message["role"] == "assistant"]
    end = FORMATS[name][2] if name in FORMATS else "<|im_end|>"
    written = {"llama2": lambda text: " " + text.strip() + " " + end, "mistral1": lambda text: text + end,
               "mistral2": lambda text: " " + text + end, "mistral3": lambda text: " " + text.strip() + end}
    if name.startswith("llama3"):
        return [text.strip() + end for text in contents]
    return [written.get(name, lambda text: text + end)(text) for text in contents]


def check(program, name, directory, fast, chats):
    lines, output = os.path.join(directory, "chats.jsonl"), os.path.join(directory, "out.tokens")
    with open(lines, "w") as file:
        file.writelines(json.dumps({"messages": messages}) + "\n" for messages in chats)
    done = subprocess.run([program, "tokenize", "--tokenizer", directory, "--output", output, lines],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    file = TokenBytes(output)
    for messages, found, begin in zip(chats, file.documents(), [0, *file.ends]):
        expected = fast.apply_chat_template(messages, tokenize=True, return_dict=False)
        assert found == expected, (f"{name}, {messages}:\n  found    {fast.decode(found)!r}\n"
                                   f"  expected {fast.decode(expected)!r}")
        learned = [token for token, flag in zip(found, file.flags[begin:begin + len(found)]) if flag]
        # A token that begins before an answer and ends in it is learned, so white space may precede an answer.
        text, answers = fast.decode(learned), answers_of(messages, name)
        assert "".join(text.split()) == "".join("".join(answers).split()), (name, text, answers)
        assert len(text) - len("".join(answers)) <= 2 * len(answers), (name, text, answers)
    print(f"{name}: {len(chats)} chats equal")


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        for name, (_, _, _, has_system) in FORMATS.items():
            directory = os.path.join(folder, name)
            fast = make_tokenizer(directory, name)
            check(program, name, directory, fast, CHATS if has_system else CHATS[:2])
        if os.path.exists(torch_python.SMOLLM2):
            fast = transformers.AutoTokenizer.from_pretrained(torch_python.SMOLLM2)
            directory = os.path.join(folder, "smollm2")
            fast.save_pretrained(directory)
            check(program, "SmolLM2", directory, fast, CHATS)


if __name__ == "__main__":
    main()
