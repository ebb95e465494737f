#!/usr/bin/env python3
"""Ids and texts are the same as in the packages `tokenizers` and `sentencepiece`, which train the vocabularies here.

    tokenizers_test.py PROGRAM

PROGRAM is encode_program. The 20,000 lines mix scripts, emoji, white space, special tokens and bytes that are not
UTF-8. The tokenizer of SmolLM2 is compared as well if tools/fetch_smollm2.py has written it. Skipped without the
packages.
"""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import torch_python  # noqa: E402

torch_python.run_with("tokenizers sentencepiece")

import sentencepiece  # noqa: E402
import tokenizers  # noqa: E402
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors  # noqa: E402

SMOLLM2 = os.path.join(torch_python.SMOLLM2, "tokenizer.json")
LINES = 20_000
FEWER = 2_000  # for what the families have in common, and for further options
TRAINED_ON = 2_000
ENTRIES = 1_500  # of a vocabulary

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")

SCRIPTS = [
    "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "àéîõüßçñøåœſ", "αβγδεζηθικλμνξοπρστυφχψω",
    "абвгдежзийклмнопрстуфхцчшщъыьэюя", "ابتثجحخدذرزسشصضطظعغفقكلمنهوي", "אבגדהוזחטיכלמנסעפצקרשת",
    "कखगघचछजझटठडढणतथदधनपफबभमयरलवशषसहािीुूेैोौ्ं",
    "กขคงจฉชซญดตถทธนบปผพฟมยรลวศสหอะาิีึืุู่้", "的一是不了人我在有他这中大来上个国", "あいうえおかきくけこさしすせそアイウエオカキクケコ", "가나다라마바사아자차카타파하한국어",
    "0123456789", "٠١٢٣४५६²½Ⅷ①",
]
SYMBOLS = ["😀", "👩‍👩‍👧‍👦", "🇩🇪", "👍🏽", "❤️", "™", "→", "…", "“", "”", "—", "!", "?", "...", ",", ".", "(", ")", "[x]",
           "{", "}", "<", ">", "#", "$", "€", "%", "^", "&&", "*", "_", "__init__",
           "\\n", "`", "~", "'", '"', "/", "//", "://", "=", "==", "+"]
ENDINGS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'LL", "'ſ", "’s"]
SPACES = [" "] * 20 + ["  ", "   ", "        ", "\t", "\t\t", "\n", "\n\n", " \n ", "\r\n",
                       "\r", "\u00a0", "\u2003", "\u3000", "\u180e",
                       "\u200b", "\u2028", "\x0b", "\x85", "\x1f", "\ufeff", "▁", "▁▁", ""]
COMBINED = ["e\u0301", "a\u0308", "n\u0303", "o\u0302\u0323", "\u1100\u1161\u11a8",
            "\u212b", "\u0958", "ﬁ", "\u0344", "\u1e9b\u0323"]
BROKEN = [b"\xff", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\x80", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80",
          b"\xe2\x28\xa1", b"\xf0\x9f", b"\xfe\xfe", b"\xe0\x80\x80"]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>", "</s>", "<unk>", "<mask>",
           "<lone>", "<wide>", "<0x41>", "<nor mal>"]


def made_lines(random_state):
    """Bytes of LINES texts."""
    words = ["".join(random_state.choices(script, k=random_state.randint(1, 9)))
             for script in SCRIPTS for _ in range(60)]
    latin = words[:120]

    def piece():
        kind = random_state.random()
        if kind < 0.55:
            return random_state.choice(latin if random_state.random() < 0.6 else words).encode()
        if kind < 0.62:
            return (random_state.choice(latin) + random_state.choice(ENDINGS)).encode()
        if kind < 0.72:
            return str(random_state.randint(0, 10**random_state.randint(1, 9))).encode()
        if kind < 0.86:
            return random_state.choice(SYMBOLS).encode()
        if kind < 0.92:
            return random_state.choice(COMBINED).encode()
        if kind < 0.96:
            return random_state.choice(SPECIAL).encode()
        if kind < 0.98:
            block = random_state.choice([(0x20, 0x2fff), (0x1f300, 0x1f6c5)])
            return chr(random_state.randint(*block)).encode()
        return random_state.choice(BROKEN)

    lines = []
    for _ in range(LINES):
        line = b"".join(piece() + random_state.choice(SPACES).encode() for _ in range(random_state.randint(0, 24)))
        lines.append(line)
    return lines


def trained(texts, pre_tokenizer, normalizer=None, special=("<|endoftext|>",)):
    """The vocabulary and the merges that `tokenizers` learns."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    byte_level = "ByteLevel" in str(type(pre_tokenizer)) or isinstance(pre_tokenizer, pre_tokenizers.Sequence)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=ENTRIES, show_progress=False, special_tokens=list(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if byte_level else [])
    tokenizer.train_from_iterator(texts, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


def byte_level(texts, before=(), normalizer=None, special=("<|endoftext|>",), prefix=False, use_regex=True, **options):
    last = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=use_regex)
    pre_tokenizer = pre_tokenizers.Sequence([*before, last]) if before else last
    vocabulary, merges = trained(texts, pre_tokenizer, normalizer, special)
    tokenizer = tokenizers.Tokenizer(models.BPE(vocabulary, merges, **options))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.add_special_tokens(list(special))
    return tokenizer


def with_bos(tokenizer, token):
    number = tokenizer.token_to_id(token)
    return processors.TemplateProcessing(single=f"{token} $A", pair=f"{token} $A {token}:1 $B:1",
                                         special_tokens=[(token, number)])


def byte_fallback(texts, **options):
    """A vocabulary in the order of Llama 2: unknown, begin, end, bytes, then what is learnt."""
    found, merges = trained(texts, pre_tokenizers.Metaspace(), special=())
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    # Rare characters have no token, so that the bytes stand for them.
    kept = [token for token in found if len(token) > 1 or ord(token) < 0x2000 or token == "▁"]
    names += [token for token in kept if token not in names]
    vocabulary = {name: number for number, name in enumerate(names)}
    merges = [(a, b) for a, b in merges if a in vocabulary and b in vocabulary and a + b in vocabulary]
    tokenizer = tokenizers.Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, **options))
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return tokenizer


def gpt2(texts):
    return byte_level(texts)


def roberta_like(texts):
    """A prefix, and added tokens with every option."""
    tokenizer = byte_level(texts, prefix=True)
    tokenizer.add_tokens([AddedToken("<mask>", lstrip=True), AddedToken("<wide>", lstrip=True, rstrip=True),
                          AddedToken("<lone>", single_word=True), AddedToken("<nor mal>", normalized=True),
                          AddedToken("  ", normalized=False), AddedToken("ab", single_word=True)])
    return tokenizer


def llama3(texts):
    split = pre_tokenizers.Split(Regex(LLAMA3), "isolated")
    tokenizer = byte_level(texts, [split], use_regex=False, ignore_merges=True)
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False),
                                                    with_bos(tokenizer, "<|endoftext|>")])
    return tokenizer


def qwen2(texts):
    return byte_level(texts, [pre_tokenizers.Split(Regex(QWEN2), "isolated", invert=False)], normalizers.NFC(),
                      ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], use_regex=False)


def gpt4o(texts):
    return byte_level(texts, [pre_tokenizers.Split(Regex(GPT4O), "removed", invert=True)], use_regex=False)


def smollm2(texts):
    return byte_level(texts, [pre_tokenizers.Digits(individual_digits=True)],
                      special=["<|endoftext|>", "<|im_start|>", "<|im_end|>"])


def neox(texts):
    tokenizer = byte_level(texts, normalizer=normalizers.NFC())
    tokenizer.add_tokens([AddedToken(" " * width, normalized=True) for width in range(24, 1, -1)])
    return tokenizer


def behaviours(texts):
    steps = [pre_tokenizers.Split("__", "merged_with_previous"),
             pre_tokenizers.Split(Regex("[/=]"), "merged_with_next"),
             pre_tokenizers.Split(Regex(r"\p{Lu}"), "contiguous"), pre_tokenizers.Digits(),
             pre_tokenizers.Punctuation(), pre_tokenizers.Split("a", "contiguous", invert=True),
             pre_tokenizers.WhitespaceSplit()]
    return byte_level(texts, steps)


def llama2(texts):
    tokenizer = byte_fallback(texts, fuse_unk=True)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = with_bos(tokenizer, "<s>")
    return tokenizer


def mistral(texts):
    tokenizer = byte_fallback(texts)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = with_bos(tokenizer, "<s>")
    return tokenizer


def metaspace(texts):
    """Without fallback: characters that are not in the vocabulary are unknown."""
    vocabulary, merges = trained(texts, pre_tokenizers.Metaspace(), special=["<unk>"])
    for rare in "àéабв的一":
        merges = [pair for pair in merges if rare not in "".join(pair)]
        vocabulary = {token: number for token, number in vocabulary.items() if rare not in token}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def gemma(texts):
    tokenizer = byte_fallback(texts, fuse_unk=True)
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.post_processor = with_bos(tokenizer, "<s>")
    return tokenizer


FAMILIES = [gpt2, llama3, qwen2, smollm2, llama2, mistral]
FURTHER = [roberta_like, gpt4o, neox, behaviours, metaspace, gemma]


def results_of(program, directory, lines):
    """What the program makes of the lines: four lists, and its line of output."""
    texts, results = os.path.join(directory, "texts"), os.path.join(directory, "results")
    with open(texts, "wb") as file:
        for line in lines:
            file.write(struct.pack("<I", len(line)) + line)
    done = subprocess.run([program, directory, texts, results], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    with open(results, "rb") as file:
        content = file.read()
    records, at = [], 0
    while at < len(content):
        length = struct.unpack_from("<I", content, at)[0]
        records.append(content[at + 4:at + 4 + length])
        at += 4 + length
    ids = [[list(struct.unpack(f"<{len(one) // 4}I", one)) for one in records[which::4]] for which in (0, 1)]
    texts = [[one.decode() for one in records[which::4]] for which in (2, 3)]
    return *ids, *texts, done.stdout.strip()


def compare(name, what, found, expected, lines):
    assert len(found) == len(expected), f"{name}: {len(found)} results for {len(expected)} lines"
    wrong = [i for i in range(len(lines)) if found[i] != expected[i]]
    for i in wrong[:3]:
        print(f"{name}, {what}, line {i}: {lines[i]!r}\n  found    {found[i]}\n  expected {expected[i]}")
    assert not wrong, f"{name}: {what} of {len(wrong)} of {len(lines)} lines differ"


def check_tokenizer(program, name, tokenizer, directory, lines, texts):
    with_special, plain, decoded, decoded_special, line = results_of(program, directory, lines)
    expected = [one.ids for one in tokenizer.encode_batch(texts)]
    compare(name, "ids", with_special, expected, lines)
    compare(name, "decoded text", decoded, tokenizer.decode_batch(expected), lines)
    compare(name, "ids without special tokens", plain[:FEWER],
            [one.ids for one in tokenizer.encode_batch(texts[:FEWER], add_special_tokens=False)], lines[:FEWER])
    compare(name, "decoded text with special tokens", decoded_special[:FEWER],
            tokenizer.decode_batch(expected[:FEWER], skip_special_tokens=False), lines[:FEWER])
    size, rate = line.split()
    largest = max(tokenizer.get_vocab().values())
    assert int(size) == largest + 1, f"{name}: size {size}, largest id {largest}"
    tokens = sum(map(len, expected))
    print(f"{name}: {len(lines)} lines, {tokens} tokens equal; {float(rate):.1f} MB/s")


def check_sentencepiece(program, folder, lines, texts):
    """Of the type BPE: of equally probable unigrams, versions of the library take different ones."""
    directory = os.path.join(folder, "sentencepiece")
    os.makedirs(directory)
    corpus = os.path.join(directory, "corpus")
    with open(corpus, "w") as file:
        file.writelines(text.replace("\n", " ").replace("\r", " ") + "\n" for text in texts[:TRAINED_ON])
    sentencepiece.SentencePieceTrainer.train(
        input=corpus, model_prefix=os.path.join(directory, "tokenizer"), vocab_size=ENTRIES, model_type="bpe",
        byte_fallback=True, character_coverage=0.98, normalization_rule_name="identity", remove_extra_whitespaces=False,
        split_digits=True, minloglevel=2)
    processor = sentencepiece.SentencePieceProcessor(model_file=os.path.join(directory, "tokenizer.model"))
    with_special, plain, decoded, _, line = results_of(program, directory, lines)
    expected = [processor.encode(text) for text in texts]
    name = "sentencepiece"
    compare(name, "ids", plain, expected, lines)
    compare(name, "ids with special tokens", with_special, [[processor.bos_id(), *ids] for ids in expected], lines)
    compare(name, "decoded text", decoded, [processor.decode(ids) for ids in expected], lines)
    size, rate = line.split()
    assert int(size) == processor.get_piece_size()
    print(f"{name}: {len(lines)} lines equal; {float(rate):.1f} MB/s")


def main():
    program = sys.argv[1]
    lines = made_lines(random.Random(20))
    texts = [line.decode(errors="replace") for line in lines]
    with tempfile.TemporaryDirectory() as folder:
        for family in FAMILIES + FURTHER:
            number = LINES if family in FAMILIES else FEWER
            tokenizer = family(texts[:TRAINED_ON])
            directory = os.path.join(folder, family.__name__)
            os.makedirs(directory)
            tokenizer.save(os.path.join(directory, "tokenizer.json"))
            check_tokenizer(program, family.__name__, tokenizer, directory, lines[:number], texts[:number])
        if os.path.exists(SMOLLM2):
            directory = os.path.join(folder, "SmolLM2")
            os.makedirs(directory)
            tokenizer = tokenizers.Tokenizer.from_file(SMOLLM2)
            tokenizer.save(os.path.join(directory, "tokenizer.json"))
            check_tokenizer(program, "SmolLM2", tokenizer, directory, lines, texts)
        check_sentencepiece(program, folder, lines, texts)


if __name__ == "__main__":
    main()
