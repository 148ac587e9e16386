"""GPT-2's tokens by their definition, one merge after the other: the independent path for tokenizer_test.cpp.

gpt2_tokens.py MERGES VOCABULARY SEED COUNT makes COUNT texts, hostile ones among them, and prints them as lines of JSON: the text, the words
that it is cut into, the tokens that it is encoded to. Wants the module regex: Python's own knows no classes of Unicode.
"""
import json
import random
import sys
import unicodedata

import regex

WORDS = regex.compile(r"'(?:s|t|re|ve|m|ll|d)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")

HOSTILE = [
    "", " ", "  ", "\n", " \n ", "a ", "a  ", "a  b", "a \n b", "a\n\n\nb", "\t\tx", "x\r\n y", "\u3000 \u3000x", "\u00a0\u00a0y",
    "'", "''", "'s", " 's", "'S", "it's", "it 's", "IT'S", "don't'll", "'ll've're", "'''s", "\u2019s", "'\u017f", "'d'", "x'm1",
    "a1b2", "1 2  3", "\u0663\u0664x", "\u00bd\u00b2", "\u216b\u2460", "a\u0301e\u0301", "\u0301", " \u0301", "\u200b", "x\u200by", "\u200d\U0001f469\u200d\U0001f680",
    "\U0001f600 \U0001f600", "\u4e2d\u6587 \u65e5\u672c", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", "\u0646\u0635", "\ufeffx", "\x00\x01", "\x1c\x1d\x1e\x1f",
    "\x85", "\u2028\u2029", "<|endoftext|>", "a<|endoftext|> b", "\U000e0001", "\U0010ffff", "\ufffd", "===  ===", "... ,,", "\u0130\u0131", "A" * 300, " " * 300, "ab" * 200,
]


def characters_of_bytes():
    """Printable bytes of Latin-1 are themselves, the others U+0100, U+0101 and on."""
    printable = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    others = [b for b in range(256) if b not in printable]
    return {**{b: chr(b) for b in printable}, **{b: chr(256 + i) for i, b in enumerate(others)}}


class Encoder:
    def __init__(self, merges, vocabulary):
        with open(merges, encoding="utf-8") as file:
            lines = file.read().split("\n")
        pairs = [tuple(line.split(" ")) for line in lines[1:] if line]
        self.order = {pair: i for i, pair in enumerate(pairs)}
        with open(vocabulary, encoding="utf-8") as file:
            self.numbers = json.load(file)
        self.characters = characters_of_bytes()

    def word(self, word):
        parts = [self.characters[b] for b in word.encode("utf-8")]
        while True:
            earliest = min(zip(parts, parts[1:]), key=lambda pair: self.order.get(pair, len(self.order)), default=None)
            if earliest not in self.order:
                return [self.numbers[part] for part in parts]
            joined, i = [], 0
            while i < len(parts):
                both = tuple(parts[i:i + 2]) == earliest
                joined.append("".join(parts[i:i + 2]) if both else parts[i])
                i += 2 if both else 1
            parts = joined


def random_text(chance, letters):
    kinds = [lambda: chance.choice(letters), lambda: chr(chance.randrange(32, 127)), lambda: chance.choice(" \n\t\u00a0"), lambda: "'" + chance.choice("stmdvrl"),
             lambda: chance.choice(["the", " of", " and", "ing", "'re", "  ", "10"])]
    return "".join(chance.choice(kinds)() for _ in range(chance.randrange(1, 60)))


def main(merges, vocabulary, seed, count):
    encoder, chance = Encoder(merges, vocabulary), random.Random(seed)
    # Assigned ones: the next version of Unicode may make letters of the others.
    letters = [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
    for i in range(count):
        text = HOSTILE[i] if i < len(HOSTILE) else random_text(chance, letters)
        words = WORDS.findall(text)
        tokens = [token for word in words for token in encoder.word(word)]
        print(json.dumps({"text": text, "words": words, "tokens": tokens}))


main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
