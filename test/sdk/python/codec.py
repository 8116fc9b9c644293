# SPDX-License-Identifier: Apache-2.0
"""Encodes and decodes the corpus of internal/amqp/testdata/peers with proton.

codec.py encode FILE  reads the corpus and prints `name hex` for each case
codec.py decode       reads such lines and prints `name [values]`, in the notation of the corpus
"""

import json
import struct
import sys
import uuid

from proton import Data


def unpack(form):
    return lambda text: struct.unpack(form, bytes.fromhex(text))[0]


def pack(form):
    return lambda value: struct.pack(form, value).hex()


def whole(value):
    """A number as text; proton's own classes of numbers would put their names around it."""
    return str(int(value))


# By the name of a type: proton's, how a value of it is put and got, and its text in both directions.
TYPES = {
    "boolean": (Data.BOOL, "bool", "true".__eq__, lambda v: "true" if v else "false"),
    "ubyte": (Data.UBYTE, "ubyte", int, whole),
    "ushort": (Data.USHORT, "ushort", int, whole),
    "uint": (Data.UINT, "uint", int, whole),
    "ulong": (Data.ULONG, "ulong", int, whole),
    "byte": (Data.BYTE, "byte", int, whole),
    "short": (Data.SHORT, "short", int, whole),
    "int": (Data.INT, "int", int, whole),
    "long": (Data.LONG, "long", int, whole),
    "float": (Data.FLOAT, "float", unpack(">f"), pack(">f")),
    "double": (Data.DOUBLE, "double", unpack(">d"), pack(">d")),
    "decimal32": (Data.DECIMAL32, "decimal32", unpack(">I"), pack(">I")),
    "decimal64": (Data.DECIMAL64, "decimal64", unpack(">Q"), pack(">Q")),
    "decimal128": (Data.DECIMAL128, "decimal128", bytes.fromhex, lambda v: bytes(v).hex()),
    "char": (Data.CHAR, "char", lambda text: chr(int(text)), lambda v: str(ord(v))),
    "timestamp": (Data.TIMESTAMP, "timestamp", int, whole),
    "uuid": (Data.UUID, "uuid", lambda text: uuid.UUID(hex=text), lambda v: v.hex),
    "binary": (Data.BINARY, "binary", bytes.fromhex, lambda v: bytes(v).hex()),
    "string": (Data.STRING, "string", str, str),
    "symbol": (Data.SYMBOL, "symbol", str, str),
}
NAMES = {code: name for name, (code, _, _, _) in TYPES.items()}


def put(data, value):
    kind, *rest = value
    if kind == "null":
        data.put_null()
    elif kind == "list":
        data.put_list()
        put_all(data, rest[0])
    elif kind == "map":
        data.put_map()
        put_all(data, [v for pair in rest[0] for v in pair])
    elif kind == "array":
        element, texts = rest
        data.put_array(False, TYPES[element][0])
        put_all(data, [[element, text] for text in texts])
    elif kind == "described":
        data.put_described()
        put_all(data, rest)
    else:
        _, method, read, _ = TYPES[kind]
        getattr(data, "put_" + method)(read(rest[0]))


def put_all(data, values):
    data.enter()
    for value in values:
        put(data, value)
    data.exit()


def get(data):
    kind = data.type()
    if kind == Data.NULL:
        return ["null"]
    if kind in NAMES:
        name = NAMES[kind]
        _, method, _, write = TYPES[name]
        return [name, write(getattr(data, "get_" + method)())]
    if kind == Data.ARRAY:
        elements = get_all(data)
        return ["array", elements[0][0], [e[1] for e in elements]]
    if kind == Data.LIST:
        return ["list", get_all(data)]
    if kind == Data.MAP:
        all_of_it = get_all(data)
        return ["map", [list(pair) for pair in zip(all_of_it[::2], all_of_it[1::2])]]
    if kind == Data.DESCRIBED:
        return ["described", *get_all(data)]
    raise ValueError(f"no type {kind}")


def get_all(data):
    values = []
    data.enter()
    while data.next():
        values.append(get(data))
    data.exit()
    return values


def encode(file):
    with open(file, encoding="utf-8") as corpus:
        cases = json.load(corpus)
    for case in cases:
        data = Data()
        for value in case["values"]:
            put(data, value)
        print(case["name"], data.encode().hex())


def decode():
    for line in sys.stdin:
        name, text = line.split()
        encoded, values = bytes.fromhex(text), []
        while encoded:
            data = Data()
            encoded = encoded[data.decode(encoded) :]
            data.rewind()
            data.next()
            values.append(get(data))
        print(name, json.dumps(values))


if sys.argv[1] == "encode":
    encode(sys.argv[2])
else:
    decode()
