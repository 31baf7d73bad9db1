"""Reads screenshots, and makes them small: 8-bit PNG with a palette."""
import collections
import struct
import zlib


def read(path):
    """The rows of a non-interlaced RGB or RGBA picture: three bytes for each pixel."""
    data = path.read_bytes()
    chunks, at = {}, 8
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at : at + 8])
        chunks[kind] = chunks.get(kind, b"") + data[at + 8 : at + 8 + size]
        at += size + 12
    width, height, depth, color, _, _, interlace = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert depth == 8 and color in (2, 6) and interlace == 0, (depth, color, interlace)
    step = 3 if color == 2 else 4
    rows = _rows(zlib.decompress(chunks[b"IDAT"]), width * step, height, step)
    return [[bytes(row[i : i + 3]) for i in range(0, len(row), step)] for row in rows]


def shrink(path):
    """Rewrites a picture in place."""
    pixels = read(path)
    width, height = len(pixels[0]), len(pixels)
    counts = collections.Counter(pixel for row in pixels for pixel in row)
    palette = _palette(counts)
    # Every other colour becomes the nearest one.
    index = {pixel: number for number, pixel in enumerate(palette)}
    for pixel in counts:
        if pixel not in index:
            index[pixel] = min(range(len(palette)), key=lambda number: _distance(palette[number], pixel))
    body = b"".join(b"\0" + bytes(index[pixel] for pixel in row) for row in pixels)
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)), (b"PLTE", b"".join(palette)),
        (b"IDAT", zlib.compress(body, 9)), (b"IEND", b""),
    ]
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in parts))


def _distance(one, other):
    return sum((a - b) ** 2 for a, b in zip(one, other))


def _palette(counts):
    """The most frequent colours, without near duplicates: a rare colour may carry meaning."""
    for least in (150, 300, 600, 1200, 2400):
        palette = []
        for pixel, _ in counts.most_common():
            if all(_distance(pixel, other) >= least for other in palette):
                palette.append(pixel)
                if len(palette) > 256:
                    break
        if len(palette) <= 256:
            return palette
    return palette[:256]


def _rows(data, length, height, step):
    """The rows with their filters undone."""
    before = bytearray(length)
    for number in range(height):
        start = number * (length + 1)
        kind, row = data[start], bytearray(data[start + 1 : start + 1 + length])
        for i in range(length):
            left = row[i - step] if i >= step else 0
            up, corner = before[i], before[i - step] if i >= step else 0
            if kind == 1:
                row[i] = row[i] + left & 255
            elif kind == 2:
                row[i] = row[i] + up & 255
            elif kind == 3:
                row[i] = row[i] + (left + up) // 2 & 255
            elif kind == 4:
                near = left + up - corner
                a, b, c = abs(near - left), abs(near - up), abs(near - corner)
                row[i] = row[i] + (left if a <= b and a <= c else up if b <= c else corner) & 255
        yield row
        before = row
