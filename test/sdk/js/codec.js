// SPDX-License-Identifier: Apache-2.0

// Encodes and decodes the corpus of internal/amqp/testdata/peers with rhea.
//
//   codec.js encode FILE  reads the corpus and prints `name hex` for each case
//   codec.js decode       reads such lines and prints `name [values]`, in the notation of the corpus

import fs from "node:fs";
import rhea from "rhea";

const { types } = rhea;

const integers = {
  ubyte: types.wrap_ubyte,
  ushort: types.wrap_ushort,
  uint: types.wrap_uint,
  byte: types.wrap_byte,
  short: types.wrap_short,
  int: types.wrap_int,
};

const eight = (text) => {
  const b = Buffer.alloc(8);
  b.writeBigUInt64BE(BigInt.asUintN(64, BigInt(text)));
  return b;
};
const safe = (text) => (Number.isSafeInteger(Number(text)) ? Number(text) : eight(text));

/** What an array of a type is made of: the code of its elements, and an element without a code. */
const elements = {
  boolean: [0x56, (s) => (s === "true" ? 1 : 0)],
  ubyte: [0x50, Number],
  int: [0x71, Number],
  long: [0x81, safe],
  ulong: [0x80, safe],
  double: [0x82, (s) => Buffer.from(s, "hex").readDoubleBE()],
  timestamp: [0x83, Number],
  uuid: [0x98, (s) => Buffer.from(s, "hex")],
  binary: [0xb0, (s) => Buffer.from(s, "hex")],
  string: [0xb1, (s) => s],
  symbol: [0xb3, (s) => s],
};

function typed([type, value, more]) {
  if (integers[type]) {
    return integers[type](Number(value));
  }
  switch (type) {
    case "null":
      return new types.Null();
    case "boolean":
      return types.wrap_boolean(value === "true");
    case "ulong":
      return types.wrap_ulong(safe(value));
    case "long":
      return types.wrap_long(safe(value));
    case "float":
      return types.wrap_float(Buffer.from(value, "hex").readFloatBE());
    case "double":
      return types.wrap_double(Buffer.from(value, "hex").readDoubleBE());
    case "decimal32":
      return new types.Decimal32(Buffer.from(value, "hex"));
    case "decimal64":
      return new types.Decimal64(Buffer.from(value, "hex"));
    case "decimal128":
      return new types.Decimal128(Buffer.from(value, "hex"));
    case "char":
      return types.wrap_char(Number(value));
    case "timestamp":
      return types.wrap_timestamp(Number(value));
    case "uuid":
      return types.wrap_uuid(Buffer.from(value, "hex"));
    case "binary":
      return types.wrap_binary(Buffer.from(value, "hex"));
    case "string":
      return types.wrap_string(value);
    case "symbol":
      return types.wrap_symbol(value);
    case "list":
      return types.wrap_list(value.map((v) => typed(v)));
    case "map":
      // Not wrap_map: an object knows no keys but strings.
      return new types.Map32(value.flat().map(typed));
    case "array": {
      const [code, element] = elements[value];
      return types.wrap_array(more.map(element), code);
    }
    case "described":
      return types.described_nc(typed(value), typed(more));
  }
  throw new Error(`no type ${type}`);
}

const bits = (width, write) => {
  const b = Buffer.alloc(width);
  write(b);
  return b.toString("hex");
};
const integer = (v) => (Buffer.isBuffer(v) ? v.readBigUInt64BE() : BigInt(v));
const signed = (v) => BigInt.asIntN(64, integer(v)).toString();

/** How a value is read, by the name that rhea gives its code. */
const readers = {
  Null: () => ["null"],
  True: () => ["boolean", "true"],
  False: () => ["boolean", "false"],
  Boolean: (v) => ["boolean", String(Boolean(v))],
  Float: (v) => ["float", bits(4, (b) => b.writeFloatBE(v))],
  Double: (v) => ["double", bits(8, (b) => b.writeDoubleBE(v))],
  CharUTF32: (v) => ["char", String(v)],
  Timestamp: (v) => ["timestamp", String(Number(v))],
};
for (const [name, codes] of Object.entries({
  ubyte: ["Ubyte"], ushort: ["Ushort"], uint: ["Uint", "SmallUint", "Uint0"],
  byte: ["Byte"], short: ["Short"], int: ["Int", "SmallInt"],
})) {
  codes.forEach((code) => (readers[code] = (v) => [name, String(v)]));
}
["Ulong", "SmallUlong", "Ulong0"].forEach((code) => (readers[code] = (v) => ["ulong", integer(v).toString()]));
["Long", "SmallLong"].forEach((code) => (readers[code] = (v) => ["long", signed(v)]));
["Decimal32", "Decimal64", "Decimal128", "Uuid"].forEach(
  (code) => (readers[code] = (v) => [code.toLowerCase(), v.toString("hex")]),
);
["Vbin8", "Vbin32"].forEach((code) => (readers[code] = (v) => ["binary", v.toString("hex")]));
["Str8", "Str32"].forEach((code) => (readers[code] = (v) => ["string", v]));
["Sym8", "Sym32"].forEach((code) => (readers[code] = (v) => ["symbol", v]));
["List0", "List8", "List32"].forEach((code) => (readers[code] = (v) => ["list", v.map(notation)]));
["Map8", "Map32"].forEach((code) => (readers[code] = (v) => ["map", pairs(v.map(notation))]));
["Array8", "Array32"].forEach((code) => (readers[code] = (v) => {
  const all = v.map(notation);
  return ["array", all[0][0], all.map((e) => e[1])];
}));

const pairs = (all) => all.flatMap((v, i) => (i % 2 ? [] : [[v, all[i + 1]]]));

function notation(value) {
  const bare = readers[value.type.name](value.value);
  return value.descriptor ? ["described", notation(value.descriptor), bare] : bare;
}

function encode(file) {
  for (const { name, values } of JSON.parse(fs.readFileSync(file, "utf8"))) {
    try {
      const writer = new types.Writer();
      values.forEach((v) => writer.write(typed(v)));
      console.log(`${name} ${writer.toBuffer().toString("hex")}`);
    } catch (err) {
      throw new Error(`${name}: ${err.message}`, { cause: err });
    }
  }
}

function decode() {
  for (const line of fs.readFileSync(0, "utf8").trim().split("\n")) {
    const [name, hex] = line.split(" ");
    const reader = new types.Reader(Buffer.from(hex, "hex"));
    const values = [];
    while (reader.remaining() > 0) {
      values.push(notation(reader.read()));
    }
    console.log(`${name} ${JSON.stringify(values)}`);
  }
}

if (process.argv[2] === "encode") {
  encode(process.argv[3]);
} else {
  decode();
}
