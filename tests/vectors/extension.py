"""Known answers of the extension segments: writes extension.json beside this file. Python 3, no packages.

The bytes are those of docs/extensions.md, 6.1. C is the end that connects and has the id CID, S is the one that accepts. What a
vector says of its segment stands beside the bytes:

  name      what it shows
  wire      the bytes of a whole packet, not encrypted where no cipher is named
  kind      the kind of the extension segment in it
  written   the crate writes these very bytes
  error     a receiver drops the segment because of this, and goes on
  ...       what the fields of the segment are
"""

import json
import struct
import zlib
from pathlib import Path

CONV = 0x11223344
CID = bytes.fromhex("a1a2a3a4a5a6a7a8")
SID = bytes.fromhex("b1b2b3b4b5b6b7b8")
TOKEN = 0x1817161514131211
COOKIE = bytes(range(0x30, 0x48))
KEEP_ALIVE = 20000
HELLO, ANSWER, RETRY, FIN, FIN_ACK, ABORT, RESET, PING, PONG, ECN = range(1, 11)
PUSH, ACK, WASK = 81, 82, 83
MARK = 0x60
NAMES = {
    HELLO: "hello", ANSWER: "answer", RETRY: "retry", FIN: "fin", FIN_ACK: "fin_ack", ABORT: "abort",
    RESET: "reset", PING: "ping", PONG: "pong", ECN: "ecn",
}


def tag(ident):
    return struct.unpack("<I", ident[:4])[0]


def kcp(cmd, frg, wnd, ts, sn, una, body=b""):
    return struct.pack("<IBBHIIII", CONV, cmd, frg, wnd, ts, sn, una, len(body)) + body


def seg(subtype, wnd, ts, sn, una, body=b""):
    return kcp(0x60, subtype, wnd, ts, sn, una, body)


def field(kind, value):
    return struct.pack("<BH", kind, len(value)) + value


def hello(ident, echo, fields, caps=0, magic=b"kcp9", version=1, oldest=1):
    return magic + struct.pack("<BBHI", version, oldest, 0, caps) + ident + struct.pack("<I", echo) + fields


def fin_body(end, flags):
    return struct.pack("<IB3x", end, flags)


KA = field(0x01, struct.pack("<I", KEEP_ALIVE))
TOK = struct.pack("<Q", TOKEN)
COOKIE_FIELD = field(0x02, COOKIE)

vectors = []


def add(name, wire, **about):
    vectors.append({"name": name, "wire": wire.hex(), **about})


def hello_vector(name, fields, ts=1000, caps=0, version=1, oldest=1, **about):
    wire = seg(HELLO, 128, ts, tag(CID), 0, hello(CID, 0, fields, caps=caps, version=version, oldest=oldest))
    about = {"version": version, "oldest": oldest, "caps": caps, "id": CID.hex(), "echo_ts": 0, **about}
    add(name, wire, kind="hello", wnd=128, ts=ts, tag=tag(CID), una=0, **about)


# What the crate writes.
pad = field(0, bytes(1200 - 24 - 24 - 7 - 3))
hello_vector("hello_short", KA, keep_alive=KEEP_ALIVE, written=True, padded=0)
hello_vector("hello_padded", KA + pad, keep_alive=KEEP_ALIVE, written=True, padded=1200)
add("answer", seg(ANSWER, 128, 5000, tag(CID), 1, hello(SID, 1000, field(0x03, TOK))), kind="answer", wnd=128, ts=5000,
    tag=tag(CID), una=1, version=1, oldest=1, caps=0, id=SID.hex(), echo_ts=1000, token=TOKEN, written=True)
add("retry", seg(RETRY, 0, 1000, tag(CID), 0, COOKIE_FIELD), kind="retry", wnd=0, ts=1000, tag=tag(CID), una=0,
    cookie=COOKIE.hex(), written=True)
hello_vector("hello_cookie", KA + COOKIE_FIELD, ts=1200, keep_alive=KEEP_ALIVE, cookie=COOKIE.hex(), written=True, padded=0)
for name, subtype, wnd, ts, ident, una, end, flags in [
    ("fin", FIN, 127, 2000, SID, 7, 42, 0),
    ("fin_no_reader", FIN, 127, 2000, SID, 7, 42, 1),
    ("fin_ack", FIN_ACK, 128, 6000, CID, 42, 42, 0),
    ("fin_of_nothing", FIN, 127, 2000, SID, 7, 0, 0),
    ("fin_at_the_wrap", FIN, 127, 2000, SID, 7, 0xFFFFFFFF, 0),
]:
    add(name, seg(subtype, wnd, ts, tag(ident), una, fin_body(end, flags)), kind=NAMES[subtype], wnd=wnd, ts=ts,
        tag=tag(ident), una=una, end=end, no_reader=flags, written=True)
add("abort", seg(ABORT, 1, 2500, tag(SID), 0), kind="abort", wnd=1, ts=2500, tag=tag(SID), una=0, reason=1, written=True)
for name, subtype, wnd, ts, ident, una in [
    ("ping", PING, 128, 3000, SID, 9),
    ("pong", PONG, 128, 7000, CID, 42),
    ("reset", RESET, 0, 3000, SID, 0),
]:
    add(name, seg(subtype, wnd, ts, tag(ident), una, TOK), kind=NAMES[subtype], wnd=wnd, ts=ts, tag=tag(ident), una=una,
        token=TOKEN, written=True)

for name, counts in [("ecn", (1000, 0, 3)), ("ecn_about_to_wrap", (0xFFFFFFFF, 1, 0x80000000))]:
    add(name, seg(ECN, 128, 3500, tag(SID), 9, struct.pack("<III", *counts)), kind="ecn", wnd=128, ts=3500, tag=tag(SID), una=9,
        ect0=counts[0], ect1=counts[1], ce=counts[2], written=True)

# What it takes, but does not write.
hello_vector("hello_with_an_unknown_field", KA + field(0x6F, b"later"), keep_alive=KEEP_ALIVE)
hello_vector("hello_with_a_field_that_must_be_understood", KA + field(0xEF, b"now"), keep_alive=KEEP_ALIVE, unsupported="ef")
hello_vector("hello_of_a_later_version", KA, version=2, keep_alive=KEEP_ALIVE)
hello_vector("hello_that_has_left_version_1_behind", KA, version=3, oldest=2, keep_alive=KEEP_ALIVE, not_spoken=True)
hello_vector("hello_with_all_caps", KA, caps=0xFFFFFFFF, keep_alive=KEEP_ALIVE)
hello_vector("hello_of_a_wish_list", field(0x05, struct.pack("<H", 9000)) + pad + KA, keep_alive=KEEP_ALIVE, max_packet=9000)
add("ping_padded", seg(PING, 128, 3000, tag(SID), 9, TOK + bytes(1168)), kind="ping", wnd=128, ts=3000, tag=tag(SID), una=9,
    token=TOKEN)
add("answer_that_refuses", seg(ANSWER, 128, 5000, tag(CID), 0, hello(SID, 1000, field(0x04, b"\xef"))), kind="answer", wnd=128,
    ts=5000, tag=tag(CID), una=0, version=1, oldest=1, caps=0, id=SID.hex(), echo_ts=1000, unsupported_by_peer="ef")
add("ecn_of_a_later_version", seg(ECN, 128, 3500, tag(SID), 9, struct.pack("<III", 1000, 0, 3) + b"more"), kind="ecn", wnd=128,
    ts=3500, tag=tag(SID), una=9, ect0=1000, ect1=0, ce=3)

# What it drops.
good = hello(CID, 0, KA)
for name, error, sn, body in [
    ("hello_of_something_else", "magic", tag(CID), hello(CID, 0, KA, magic=b"kcp8")),
    ("hello_of_version_0", "version", tag(CID), hello(CID, 0, KA, version=0, oldest=0)),
    ("hello_whose_oldest_is_its_newest", "version", tag(CID), hello(CID, 0, KA, version=1, oldest=2)),
    ("hello_with_the_tag_of_another", "tag", tag(SID), good),
    ("hello_with_tag_0", "tag", 0, good),
    ("hello_of_an_id_with_tag_0", "tag", 0, hello(bytes(4) + CID[4:], 0, KA)),
    ("hello_with_a_field_twice", "twice", tag(CID), hello(CID, 0, KA + KA)),
    ("hello_with_a_field_past_the_end", "past_end", tag(CID), hello(CID, 0, KA[:-1])),
    ("hello_with_1_byte_left_over", "left_over", tag(CID), hello(CID, 0, KA + b"\0")),
    ("hello_with_2_bytes_left_over", "left_over", tag(CID), hello(CID, 0, KA + b"\0\0")),
    ("hello_with_a_short_keep_alive", "wrong_length", tag(CID), hello(CID, 0, field(0x01, bytes(3)))),
    ("hello_that_is_too_short", "too_short", tag(CID), good[:23]),
]:
    add(name, seg(HELLO, 128, 1000, sn, 0, body), kind="hello", wnd=128, ts=1000, tag=sn, una=0, error=error)
for name, subtype, body in [
    ("retry_without_a_cookie", RETRY, b""),
    ("fin_that_is_too_short", FIN, fin_body(42, 0)[:7]),
    ("ping_without_a_token", PING, TOK[:7]),
    ("ecn_that_is_too_short", ECN, bytes(11)),
]:
    add(name, seg(subtype, 128, 1000, tag(SID), 0, body), kind=NAMES[subtype], wnd=128, ts=1000, tag=tag(SID), una=0,
        error="too_short")

# Segments of KCP beside them.
push = kcp(PUSH, 0, 128, 3600, 0, 0, b"data")
add("unknown_subtype_before_a_push", seg(0x7F, 128, 3600, tag(SID), 0, b"\1\2\3\4\5") + push, kind="unknown", wnd=128, ts=3600,
    tag=tag(SID), una=0, push=b"data".hex())
shard = push + seg(FIN, 127, 2000, tag(SID), 7, fin_body(1, 0))
add("push_and_fin_under_fec", struct.pack("<IHH", 9, 0xF1, len(shard) + 2) + shard, kind="mixed", seqid=9, push=b"data".hex(),
    end=1)
add("ack_marked", kcp(ACK, MARK, 128, 1000, 0, 1), kind="mark", cmd=ACK, wnd=128, ts=1000, sn=0, una=1)
add("wask_marked", kcp(WASK, MARK, 128, 1000, 1, 7), kind="mark", cmd=WASK, wnd=128, ts=1000, sn=1, una=7)


# ---- Encrypted: AES-128 as FIPS 197 says it, CFB as kcp-go uses it, GCM as in SP 800-38D ----

def times_x(byte):
    return (byte << 1 ^ 0x11B if byte & 0x80 else byte << 1) & 0xFF


def times(a, b):
    product = 0
    while b:
        product ^= a if b & 1 else 0
        a, b = times_x(a), b >> 1
    return product


def inverse(byte):
    return next((other for other in range(256) if times(byte, other) == 1), 0)


def substitute(byte):
    inv, out = inverse(byte), 0x63
    for turn in range(5):
        out ^= (inv << turn | inv >> 8 - turn) & 0xFF
    return out


SBOX = [substitute(byte) for byte in range(256)]


def expand(key):
    words = [list(key[at:at + 4]) for at in range(0, 16, 4)]
    constant = 1
    for at in range(4, 44):
        word = words[-1]
        if at % 4 == 0:
            word = [SBOX[byte] for byte in word[1:] + word[:1]]
            word[0] ^= constant
            constant = times_x(constant)
        words.append([a ^ b for a, b in zip(words[-4], word)])
    return [sum(words[at:at + 4], []) for at in range(0, 44, 4)]


def aes(keys, block):
    state = [a ^ b for a, b in zip(block, keys[0])]
    for number, key in enumerate(keys[1:], 1):
        state = [SBOX[state[(at + 4 * (at % 4)) % 16]] for at in range(16)]
        if number < 10:
            mixed = []
            for column in range(0, 16, 4):
                c = state[column:column + 4]
                for row in range(4):
                    mixed.append(times(c[row], 2) ^ times(c[(row + 1) % 4], 3) ^ c[(row + 2) % 4] ^ c[(row + 3) % 4])
            state = mixed
        state = [a ^ b for a, b in zip(state, key)]
    return bytes(state)


def xor(a, b):
    return bytes(x ^ y for x, y in zip(a, b))


KCP_GO_IV = bytes([167, 115, 79, 156, 18, 172, 27, 1, 164, 21, 242, 193, 252, 120, 230, 107])


def cfb(key, nonce, payload):
    """A packet of kcp-go: a nonce and a CRC-32 in front, all of it encrypted with a fixed initial vector."""
    plain = nonce + struct.pack("<I", zlib.crc32(payload)) + payload
    keys, last, out = expand(key), KCP_GO_IV, b""
    for at in range(0, len(plain), 16):
        last = xor(plain[at:at + 16], aes(keys, last))
        out += last
    return out


def ghash_times(a, b):
    product, shifted = 0, b
    for bit in range(127, -1, -1):
        if a >> bit & 1:
            product ^= shifted
        shifted = shifted >> 1 ^ (0xE1 << 120 if shifted & 1 else 0)
    return product


def gcm(key, nonce, payload):
    """A packet with an AEAD: the nonce in front, the tag behind."""
    keys = expand(key)
    h = int.from_bytes(aes(keys, bytes(16)), "big")
    counter = lambda n: aes(keys, nonce + struct.pack(">I", n))
    blocks = range(0, len(payload), 16)
    out = b"".join(xor(payload[at:at + 16], counter(2 + at // 16)) for at in blocks)
    y = 0
    for block in [out[at:at + 16] for at in blocks] + [struct.pack(">QQ", 0, 8 * len(payload))]:
        y = ghash_times(y ^ int.from_bytes(block.ljust(16, b"\0"), "big"), h)
    return nonce + out + xor(y.to_bytes(16, "big"), counter(1))


FIPS_197 = aes(expand(bytes(range(16))), bytes.fromhex("00112233445566778899aabbccddeeff"))
assert FIPS_197.hex() == "69c4e0d86a7b0430d8cdb78070b4c55a"

KEY = bytes(range(0x60, 0x70))
# The packet of 1,200 bytes: what the cipher takes of it is missing from the padding.
for name, cipher, seal, nonce, overhead in [
    ("hello_under_aes_128_gcm", "aes-128-gcm", gcm, bytes(range(12)), 28),
    ("hello_under_aes_128_cfb", "aes-128", cfb, bytes(range(16)), 20),
]:
    padding = field(0, bytes(1200 - overhead - 24 - 24 - 7 - 3))
    payload = seg(HELLO, 128, 1000, tag(CID), 0, hello(CID, 0, KA + padding))
    add(name, seal(KEY, nonce, payload), kind="sealed", cipher=cipher, key=KEY.hex(), nonce=nonce.hex(), payload=payload.hex())

# ---- What a record of an ended session answers: the session is that of S, which had received the PUSHes before 42 ----

RCV_NXT = 42
for name, record, cause, answer in [
    ("record_push", "finished", kcp(PUSH, 0, 128, 9000, 41, 7, b"again"), kcp(ACK, MARK, 32, 9000, 41, RCV_NXT)),
    ("record_fin", "finished", seg(FIN, 127, 9000, tag(SID), 7, fin_body(42, 0)),
     seg(FIN_ACK, 32, 9000, tag(CID), RCV_NXT, fin_body(42, 0))),
    ("record_ping", "finished", seg(PING, 128, 9000, tag(SID), 7, TOK), seg(RESET, 0, 9000, tag(SID), 0, TOK)),
    ("record_push_without_a_reader", "no_reader", kcp(PUSH, 0, 128, 9000, 42, 7, b"more"), seg(ABORT, 0, 9000, tag(CID), 0)),
    ("record_push_after_an_abort", "aborted", kcp(PUSH, 0, 128, 9000, 42, 7, b"more"), seg(ABORT, 1, 9000, tag(CID), 0)),
    ("record_push_of_a_legacy_peer", "legacy", kcp(PUSH, 0, 128, 9000, 41, 7, b"again"), kcp(ACK, MARK, 32, 9000, 41, RCV_NXT)),
]:
    add(name, answer, kind="record", record=record, cause=cause.hex())

lines = ",\n".join(json.dumps(vector, sort_keys=True) for vector in vectors)
Path(__file__).with_name("extension.json").write_text("[" + lines + "]\n")
