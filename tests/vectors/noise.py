"""Known answers of handshakes and sealed packets: writes noise.json beside this file. Python 3 with the package `cryptography`.

It has its own implementation of the Noise Protocol Framework (revision 34) and of docs/secure-sessions.md: nothing of the crate is
used. X25519, ChaCha20-Poly1305 and AES-GCM are OpenSSL's, BLAKE2s is Python's, SipHash-2-4 is below.

A vector has the keys of both ends, what they draw, the contexts, the messages, and packets after the handshake in the order in which
they are sealed:

  from       0 the initiator, 1 the responder
  change     the sender is asked to change its key before
  route, payload, wire

noise_framework.json has the vectors of the framework for our patterns, as the implementation cacophony has made them (of the
file cacophony.txt that the crate snow 0.10.0 carries, Apache-2.0 or MIT). This script checks itself against them.
"""

import hashlib
import hmac
import json
import struct
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

HERE = Path(__file__).parent
PATTERNS = {
    "NNpsk0": (0, [], ["psk e", "e ee"]),
    "NKpsk0": (1, ["s"], ["psk e es", "e ee"]),
    "XXpsk3": (2, [], ["e", "e ee s es", "s se psk"]),
    "NK": (3, ["s"], ["e es", "e ee"]),
    "XX": (4, [], ["e", "e ee s es", "s se"]),
}
CIPHERS = {"aes-256-gcm": (0, AESGCM), "chacha20-poly1305": (1, ChaCha20Poly1305)}


def blake2s(*parts):
    return hashlib.blake2s(b"".join(parts)).digest()


def hkdf(chaining_key, material, outputs):
    def mac(key, text):
        return hmac.new(key, text, hashlib.blake2s).digest()

    temporary, made = mac(chaining_key, material), []
    for number in range(1, outputs + 1):
        made.append(mac(temporary, (made[-1] if made else b"") + bytes([number])))
    return made


def public(secret):
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def dh(secret, peer):
    return X25519PrivateKey.from_private_bytes(secret).exchange(X25519PublicKey.from_public_bytes(peer))


class End:
    """One end of a handshake of the framework, both of whose secrets are known: it only writes."""

    def __init__(self, pattern, prologue, ends, psk):
        # ends: initiator and responder, each with the secrets "s" and "e"; s may be missing.
        _, known, self.messages = PATTERNS[pattern]
        self.ends, self.psk, self.key, self.nonce = ends, psk, None, 0
        name = f"Noise_{pattern}_25519_ChaChaPoly_BLAKE2s".encode()
        self.h = name.ljust(32, b"\0") if len(name) <= 32 else blake2s(name)
        self.ck = self.h
        self.mix_hash(prologue)
        for _ in known:
            self.mix_hash(public(ends[1]["s"]))

    def mix_hash(self, text):
        self.h = blake2s(self.h, text)

    def mix_key(self, material):
        self.ck, self.key = hkdf(self.ck, material, 2)
        self.nonce = 0

    def encrypt_and_hash(self, text):
        if self.key is not None:
            nonce = bytes(4) + struct.pack("<Q", self.nonce)
            text = ChaCha20Poly1305(self.key).encrypt(nonce, text, self.h)
            self.nonce += 1
        self.mix_hash(text)
        return text

    def write(self, number, payload):
        sender, written = number % 2, b""
        for token in self.messages[number].split():
            if token == "e":
                e = public(self.ends[sender]["e"])
                written += e
                self.mix_hash(e)
                if self.psk:
                    self.mix_key(e)
            elif token == "s":
                written += self.encrypt_and_hash(public(self.ends[sender]["s"]))
            elif token == "psk":
                self.ck, mixed, self.key = hkdf(self.ck, self.psk, 3)
                self.mix_hash(mixed)
                self.nonce = 0
            else:
                mine, other = self.ends[0][token[0]], self.ends[1][token[1]]
                self.mix_key(dh(mine, public(other)))
        return written + self.encrypt_and_hash(payload)

    def split(self):
        return hkdf(self.ck, b"", 2)


def check_framework():
    for vector in json.loads((HERE / "noise_framework.json").read_text()):
        pattern = vector["protocol_name"].split("_")[1]
        ends = [
            {"s": bytes.fromhex(vector.get(f"{end}_static", "")), "e": bytes.fromhex(vector[f"{end}_ephemeral"])}
            for end in ("init", "resp")
        ]
        psk = bytes.fromhex((vector.get("init_psks") or [""])[0])
        end = End(pattern, bytes.fromhex(vector["init_prologue"]), ends, psk)
        for number in range(len(end.messages)):
            message = vector["messages"][number]
            assert end.write(number, bytes.fromhex(message["payload"])).hex() == message["ciphertext"], pattern
        assert end.h.hex() == vector["handshake_hash"], pattern


def derive(key, label, context=b""):
    return hashlib.blake2s(bytes([len(label)]) + label + context, key=key).digest()


def digest(label, text):
    return blake2s(bytes([len(label)]), label, text)


def siphash_2_4(key, text):
    mask = (1 << 64) - 1
    k0, k1 = struct.unpack("<QQ", key)
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def rotate(x, by):
        return (x << by | x >> (64 - by)) & mask

    def rounds(count):
        for _ in range(count):
            v[0] = (v[0] + v[1]) & mask
            v[1] = rotate(v[1], 13) ^ v[0]
            v[0] = rotate(v[0], 32)
            v[2] = (v[2] + v[3]) & mask
            v[3] = rotate(v[3], 16) ^ v[2]
            v[0] = (v[0] + v[3]) & mask
            v[3] = rotate(v[3], 21) ^ v[0]
            v[2] = (v[2] + v[1]) & mask
            v[1] = rotate(v[1], 17) ^ v[2]
            v[2] = rotate(v[2], 32)

    padded = text + bytes(7 - len(text) % 8) + bytes([len(text) & 255])
    for (word,) in struct.iter_unpack("<Q", padded):
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xFF
    rounds(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def masked(key, word, sample):
    """A word of the header as it is seen: `sample` is what follows the header."""
    return word ^ siphash_2_4(key, sample[:16]) & 0xFFFFFFFF


class Direction:
    """The packets that one end seals."""

    def __init__(self, split, handshake_hash, cipher, route_key):
        self.route_key = route_key
        self.secret = derive(split, b"kcp9 secret", handshake_hash)
        self.mask = derive(self.secret, b"kcp9 mask")[:16]
        self.cipher, self.counter, self.epoch = cipher, 0, 0

    def change(self):
        self.secret = derive(self.secret, b"kcp9 next")
        self.epoch += 1

    def seal(self, route, payload):
        nonce = struct.pack("<IQ", route, self.counter)
        sealed = CIPHERS[self.cipher][1](derive(self.secret, b"kcp9 key")).encrypt(nonce, payload, b"")
        clear = (self.epoch & 1) << 31 | self.counter & 0x7FFFFFFF
        self.counter += 1
        words = masked(self.route_key, route, sealed), masked(self.mask, clear, sealed)
        return struct.pack("<II", *words) + sealed


def vector(pattern, cipher):
    number, known, messages = PATTERNS[pattern]
    ends = [{"e": bytes([0xA0 + number] * 32)}, {"e": bytes([0xB0 + number] * 32)}]
    if "s" in " ".join(messages).split():
        ends[0]["s"] = bytes([0xC0 + number] * 32)
    if known or "s" in ends[0]:
        ends[1]["s"] = bytes([0xD0 + number] * 32)
    psk = bytes(range(32)) if "psk" in pattern else b""
    context, answer_context = b"beside the first message", b"beside the answer"

    def header(which):
        return bytes([1, which, number, CIPHERS[cipher][0]])

    end = End(pattern, b"kcp9 noise" + header(1) + context, ends, psk)
    written = [header(1)]
    if known:
        key = digest(b"kcp9 hint", public(ends[1]["s"]))
        written[0] += derive(key, b"kcp9 hint", public(ends[0]["e"]))[:8]
    # Early data, where the first message is encrypted and there are two; with one of the ciphers.
    early = b"early data" if len(messages) == 2 and cipher == "chacha20-poly1305" else b""
    label = b"kcp9 answer to early data" if early else b"kcp9 answer"
    written[0] += end.write(0, early)
    route_secret = derive(ends[1]["s"], b"kcp9 route secret")[:16] if "s" in ends[1] else b""
    written.append(header(2) + end.write(1, digest(label, answer_context)[:16] + route_secret))
    if len(messages) == 3:
        written.append(header(3) + end.write(2, b""))

    route_key = derive(psk or bytes(32), b"kcp9 route", route_secret)[:16]
    directions = [Direction(split, end.h, cipher, route_key) for split in end.split()]
    packets = []
    for sender, change, route, payload in [
        (0, False, 0x11223344, b"the first"),
        (1, False, 0xFFFFFFFE, b""),
        (0, False, 0x11223344, bytes(range(200))),
        (0, True, 0x11223344, b"under the second key"),
        (1, False, 7, b"the answer is under the second key as well"),
        (1, True, 7, b"and this one under the third"),
        (0, False, 0x11223344, b"the last"),
    ]:
        if change:
            directions[sender].change()
        elif directions[sender].epoch < directions[1 - sender].epoch:
            directions[sender].change()
        wire = directions[sender].seal(route, payload)
        packets.append(
            {"from": sender, "change": int(change), "route": route, "payload": payload.hex(), "wire": wire.hex()}
        )
    made = {
        "pattern": pattern, "cipher": cipher, "context": context.hex(), "answer_context": answer_context.hex(),
        "early": early.hex(),
        "handshake_hash": end.h.hex(), "messages": [message.hex() for message in written], "packets": packets,
    }
    for name, end_keys in zip(("initiator", "responder"), ends):
        for key, secret in end_keys.items():
            made[f"{name}_{key}"] = secret.hex()
        if "s" in end_keys:
            made[f"{name}_public"] = public(end_keys["s"]).hex()
    if "s" in ends[1]:
        # Of the session of 0x11223344 with 192.0.2.1, port 4000 (R120).
        secret = derive(ends[1]["s"], b"kcp9 reset secret")
        peer = bytes(10) + b"\xff\xff" + bytes([192, 0, 2, 1]) + (4000).to_bytes(2, "little")
        reset_key = derive(secret, b"kcp9 reset key", peer + (0x11223344).to_bytes(4, "little"))[:16]
        made["reset_key"] = reset_key.hex()
        drawn = bytes(range(0x60, 0x60 + 36))
        made["reset"] = (struct.pack("<I", masked(route_key, 0x11223344, drawn[4:])) + drawn + reset_key).hex()
    if psk:
        made["psk"] = psk.hex()
    return made


# The key and the text of the authors' own test vectors for SipHash-2-4.
assert siphash_2_4(bytes(range(16)), bytes(range(15))) == 0xA129CA6149BE45E5
check_framework()
vectors = [vector(pattern, cipher) for pattern in PATTERNS for cipher in CIPHERS]
lines = ",\n".join(json.dumps(one, sort_keys=True) for one in vectors)
(HERE / "noise.json").write_text(f"[{lines}]\n")
