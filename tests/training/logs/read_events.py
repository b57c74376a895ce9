"""read_events.py DIRECTORY...: what the event files in these directories say, a JSON a line, by the formats alone: TFRecord's
frames and the fields of event.proto and summary.proto. Ends with an error where a checksum or a length is wrong."""
import json
import pathlib
import struct
import sys


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    at = 0
    while at < len(data):
        length = data[at:at + 8]
        assert struct.unpack("<I", data[at + 8:at + 12])[0] == masked(length), "a length's checksum"
        size = struct.unpack("<Q", length)[0]
        record = data[at + 12:at + 12 + size]
        assert len(record) == size, "a record is cut off"
        assert struct.unpack("<I", data[at + 12 + size:at + 16 + size])[0] == masked(record), "a record's checksum"
        yield record
        at += 16 + size


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def fields(message):
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(message, at)
        elif kind == 2:
            size, at = varint(message, at)
            value, at = message[at:at + size], at + size
        else:
            size = {1: 8, 5: 4}[kind]
            value, at = message[at:at + size], at + size
        yield key >> 3, value


for folder in sys.argv[1:]:
    for path in sorted(pathlib.Path(folder).glob("*tfevents*")):
        for record in records(path.read_bytes()):
            event = dict(fields(record))
            told = {"file": path.name, "wall_time": struct.unpack("<d", event[1])[0], "step": event.get(2, 0)}
            if 3 in event:
                told["version"] = event[3].decode()
            if 7 in event:
                told["status"] = dict(fields(event[7]))[1]
            for number, value in fields(event.get(5, b"")):
                assert number == 1
                scalar = dict(fields(value))
                told.setdefault("scalars", {})[scalar[1].decode()] = struct.unpack("<f", scalar[2])[0]
            print(json.dumps(told))
