"""Reads token files of version 1 (src/penstock/text/token_file.h), for tests."""
import struct


class TokenBytes:
    """tokens: a list; ends: the tokens up to the end of each document; flags: a list of booleans, or None."""

    def __init__(self, path):
        with open(path, "rb") as file:
            content = file.read()
        magic, version, width, tokens, documents, self.vocabulary, flags = struct.unpack_from("<8sIIQQQQ", content)
        assert (magic, version) == (b"PSTOKENS", 1), (magic, version)
        self.width = width
        self.tokens = list(struct.unpack_from(f"<{tokens}{'H' if width == 2 else 'I'}", content, 64))
        at = 64 + (tokens * width + 7) // 8 * 8
        self.ends = list(struct.unpack_from(f"<{documents}Q", content, at))
        at += 8 * documents
        self.flags = [bool(flag) for flag in content[at:at + tokens]] if flags else None
        assert len(content) == at + (tokens if flags else 0)

    def documents(self):
        """The tokens of each document."""
        return [self.tokens[begin:end] for begin, end in zip([0, *self.ends], self.ends)]
