"""Writes image.png: a 3 x 2 image with a palette of four colours, one of them half transparent, without compression."""

import struct
import zlib


def chunk(kind, data):
    body = kind + data
    return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))


with open("image.png", "wb") as f:
    f.write(b"\x89PNG\r\n\x1a\n")
    f.write(chunk(b"IHDR", struct.pack(">IIBBBBB", 3, 2, 8, 3, 0, 0, 0)))
    f.write(chunk(b"PLTE", bytes([255, 0, 0, 0, 255, 0, 0, 0, 255, 10, 20, 30])))
    f.write(chunk(b"tRNS", bytes([255, 255, 255, 128])))
    f.write(chunk(b"IDAT", zlib.compress(bytes([0, 0, 1, 2, 0, 3, 3, 0]), 0)))
    f.write(chunk(b"IEND", b""))
