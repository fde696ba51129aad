-- A Wireshark dissector for KCP, as kcp-go, kcptun, ikcp and kcp9 speak it: segments, FEC packets, and the extension segments of
-- kcp9. docs/wireshark.md says how to install it and what it shows, docs/extensions.md what extension segments mean, and
-- docs/secure-sessions.md how ends agree on keys, and what the packets are that they seal then.
--
-- Nothing is decrypted. It runs under Lua 5.1 to 5.4, which is why it has no bit operators and no integer division.

local kcp = Proto("kcp", "KCP")

-- ---- What is on the wire ----

local HEADER_LEN = 24
local PUSH, ACK, WASK, WINS, EXTENSION = 81, 82, 83, 84, 0x60
-- In `frg` of ACK, WASK and WINS: the sender knows extension segments.
local MARK = 0x60

local FEC_DATA, FEC_PARITY, OUT_OF_BAND = 0xf1, 0xf2, 0xf3
local FEC_HEADER_LEN = 8
-- The size field of an FEC packet counts from here.
local SHARD_AT = 6
local NO_SEQID = 0xffffffff

-- Bytes in front of everything else. The packet ciphers put a nonce and a checksum there, and the one called `none` encrypts
-- neither them nor what follows: CRC-32 as kcp-go has it, or the tag of kcp9's own framing.
local NONCE_LEN = 16
local FRAMINGS = { 0, NONCE_LEN + 4, NONCE_LEN + 8 }

local HELLO, ANSWER, RETRY, FIN, FIN_ACK, ABORT, RESET, PING, PONG, ECN, NOISE = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
local HELLO_LEN = 24
-- The shortest body of each subtype.
local BODY_LEN = {
  [HELLO] = HELLO_LEN, [ANSWER] = HELLO_LEN, [RETRY] = 3, [FIN] = 8, [FIN_ACK] = 8, [ABORT] = 0, [RESET] = 8, [PING] = 8,
  [PONG] = 8, [ECN] = 12, [NOISE] = 0,
}
local MUST_UNDERSTAND = 0x80
local PAD, KEEP_ALIVE, COOKIE, TOKEN, UNSUPPORTED, MAX_PACKET, RESET_KEY = 0, 1, 2, 3, 4, 5, 6
-- It is always sent as one that must be understood: without that bit it is some other field, which receivers skip.
local NOISE_FIELD = 0x20
local MAX_COOKIE_LEN = 64

-- Messages of key agreement: `version | number | pattern | cipher | rest`, or, of a refusal, `version | number | reason | 0`.
local NOISE_VERSION = 1
local NOISE_HEADER_LEN = 4
local FIRST_MESSAGE, ANSWER_MESSAGE, LAST_MESSAGE, REFUSAL = 1, 2, 3, 255
local HINT_LEN, EPHEMERAL_LEN = 8, 32
-- By pattern: the bytes of each message. The first one has a hint in two of them. In those without a third message it may be longer,
-- by early data.
local PATTERNS = {
  [0] = { name = "NNpsk0", [FIRST_MESSAGE] = 52, [ANSWER_MESSAGE] = 68 },
  [1] = { name = "NKpsk0", [FIRST_MESSAGE] = 60, [ANSWER_MESSAGE] = 84, has_hint = true },
  [2] = { name = "XXpsk3", [FIRST_MESSAGE] = 52, [ANSWER_MESSAGE] = 132, [LAST_MESSAGE] = 68 },
  [3] = { name = "NK", [FIRST_MESSAGE] = 60, [ANSWER_MESSAGE] = 84, has_hint = true },
  [4] = { name = "XX", [FIRST_MESSAGE] = 36, [ANSWER_MESSAGE] = 132, [LAST_MESSAGE] = 68 },
}
local MAX_EARLY_DATA = 1000
-- Which messages a subtype carries.
local MESSAGES_OF = {
  [HELLO] = { [FIRST_MESSAGE] = true }, [ANSWER] = { [ANSWER_MESSAGE] = true, [REFUSAL] = true },
  [NOISE] = { [LAST_MESSAGE] = true },
}
-- A sealed packet: `masked route | masked counter | payload | tag`. The route is the conversation, and cannot be read.
local SEALED_HEADER_LEN, SEALED_TAG_LEN = 8, 16

local COMMANDS = { [PUSH] = "PUSH", [ACK] = "ACK", [WASK] = "WASK", [WINS] = "WINS", [EXTENSION] = "EXTENSION" }
local SUBTYPES = {
  [HELLO] = "HELLO", [ANSWER] = "ANSWER", [RETRY] = "RETRY", [FIN] = "FIN", [FIN_ACK] = "FIN_ACK", [ABORT] = "ABORT",
  [RESET] = "RESET", [PING] = "PING", [PONG] = "PONG", [ECN] = "ECN", [NOISE] = "NOISE",
}
local FEC_TYPES = { [FEC_DATA] = "data", [FEC_PARITY] = "parity", [OUT_OF_BAND] = "out-of-band" }
local REASONS = {
  [0] = "none", [1] = "application", [2] = "idle or linger timeout", [3] = "protocol error", [4] = "shut down", [5] = "refused",
  [6] = "its key is accepted no longer",
}
local KINDS = {
  [PAD] = "PAD", [KEEP_ALIVE] = "KEEP_ALIVE", [COOKIE] = "COOKIE", [TOKEN] = "TOKEN", [UNSUPPORTED] = "UNSUPPORTED",
  [MAX_PACKET] = "MAX_PACKET", [RESET_KEY] = "RESET_KEY", [NOISE_FIELD] = "NOISE",
}
local MESSAGES = {
  [FIRST_MESSAGE] = "first", [ANSWER_MESSAGE] = "answer", [LAST_MESSAGE] = "last", [REFUSAL] = "refusal",
}
local PATTERN_NAMES = {}
for pattern, terms in pairs(PATTERNS) do PATTERN_NAMES[pattern] = terms.name end
local NOISE_CIPHERS = { [0] = "AES-256-GCM", [1] = "ChaCha20-Poly1305" }
local REFUSALS = {
  [1] = "version", [2] = "pattern", [3] = "cipher", [4] = "unknown server key", [5] = "wrong psk", [6] = "untrusted key",
}

-- ---- Fields, by their names behind `kcp.` ----

local f, all_fields = {}, {}
local function field(kind, name, ...)
  f[name] = ProtoField[kind]("kcp." .. name, ...)
  all_fields[#all_fields + 1] = f[name]
end

field("bytes", "nonce", "Nonce", base.NONE, "Of the cipher `none`, which encrypts nothing")
field("uint32", "checksum", "Checksum (CRC-32)", base.HEX)
field("bytes", "tag", "Tag (HighwayHash-64)")

field("uint32", "fec.seqid", "FEC seqid", base.DEC)
field("uint16", "fec.type", "FEC type", base.HEX, FEC_TYPES)
field("uint16", "fec.size", "FEC size", base.DEC, nil, 0, "Bytes of this field and what follows")
field("uint32", "fec.group", "FEC group", base.DEC, nil, 0, "By the shards in the preferences")
field("uint32", "fec.index", "Index in the group", base.DEC)
field("bytes", "fec.parity", "Parity")
field("bytes", "datagram", "Datagram", base.NONE, "Out-of-band: beside the stream")

field("none", "sealed", "Sealed packet")
field("uint32", "sealed.route", "Route, masked", base.HEX)
field("uint32", "sealed.masked", "Counter and phase, masked", base.HEX)
field("bytes", "sealed.payload", "Payload, encrypted")
field("bytes", "sealed.tag", "Tag")

field("uint32", "stream", "Stream index", base.DEC, nil, 0, "One for each conversation between two addresses")
field("none", "segment", "Segment")
field("uint32", "conv", "Conversation", base.HEX)
field("uint8", "cmd", "Command", base.DEC, COMMANDS)
field("uint8", "frg", "Fragments to come", base.DEC)
field("uint16", "wnd", "Window (segments)", base.DEC)
field("uint32", "ts", "Timestamp (ms)", base.DEC)
field("uint32", "sn", "Sequence number", base.DEC)
field("uint32", "una", "First not received (una)", base.DEC)
field("uint32", "len", "Length", base.DEC)
field("bytes", "data", "Data")
field("bytes", "rest", "Not dissected")

field("bool", "ext.mark", "Knows extension segments", base.NONE)
field("uint8", "ext.subtype", "Subtype", base.HEX, SUBTYPES)
field("uint32", "ext.tag", "Tag", base.HEX)
field("bytes", "ext.body", "Body")
field("string", "ext.magic", "Magic")
field("uint8", "ext.version", "Highest version", base.DEC)
field("uint8", "ext.oldest", "Lowest version", base.DEC)
field("uint32", "ext.caps", "Capabilities", base.HEX)
local CAPS = {
  { "datagrams", "Takes out-of-band datagrams", 0x1 },
  { "ecn", "Reports ECN marks", 0x2 },
  { "move", "Follows its peer to another address", 0x4 },
  { "probe", "Takes packets longer than its mtu", 0x8 },
}
for _, cap in ipairs(CAPS) do
  field("bool", "ext.caps." .. cap[1], cap[2], 32, nil, cap[3])
end
field("bytes", "ext.id", "Session id")
field("uint32", "ext.echo_ts", "Timestamp of the HELLO", base.DEC)
field("none", "ext.field", "Field")
field("uint8", "ext.field.type", "Type", base.HEX, KINDS, 0x7f)
field("bool", "ext.field.must_understand", "Must be understood", 8, nil, MUST_UNDERSTAND)
field("uint16", "ext.field.len", "Length", base.DEC)
field("bytes", "ext.field.value", "Value")
field("uint32", "ext.keep_alive", "Keep-alive (ms)", base.DEC)
field("bytes", "ext.cookie", "Cookie")
field("bytes", "ext.token", "Token")
field("bytes", "ext.unsupported", "Types that are not understood")
field("uint16", "ext.max_packet", "Longest packet", base.DEC)
field("bytes", "ext.reset_key", "Reset key")
field("none", "ext.noise", "Message of key agreement")
field("uint8", "ext.noise.version", "Version", base.DEC)
field("uint8", "ext.noise.number", "Message", base.DEC, MESSAGES)
field("uint8", "ext.noise.pattern", "Pattern", base.DEC, PATTERN_NAMES)
field("uint8", "ext.noise.cipher", "Cipher of packets", base.DEC, NOISE_CIPHERS)
field("uint8", "ext.noise.reason", "Reason", base.DEC, REFUSALS)
field("bytes", "ext.noise.hint", "Hint", base.NONE, "By which a server knows that its key is meant")
field("bytes", "ext.noise.ephemeral", "Ephemeral public key")
field("uint16", "ext.noise.early_data", "Bytes of early data", base.DEC)
field("bytes", "ext.noise.rest", "Rest of the message", base.NONE, "All that is encrypted, and tags")
field("bytes", "ext.padding", "Padding")
field("uint32", "ext.end", "The stream ends at", base.DEC)
field("uint8", "ext.flags", "Flags", base.HEX)
field("bool", "ext.no_reader", "Nobody reads here any more", 8, nil, 0x1)
field("uint16", "ext.reason", "Reason", base.DEC, REASONS)
field("uint32", "ext.ect0", "Packets with ECT(0)", base.DEC)
field("uint32", "ext.ect1", "Packets with ECT(1)", base.DEC)
field("uint32", "ext.ce", "Packets with CE", base.DEC)

-- What no single packet says. All of it is generated.
field("framenum", "analysis.resend_frame", "Resend of frame", base.NONE, frametype.NONE, nil, "Of its first transmission")
field("relative_time", "analysis.resend_time", "Time since the first transmission")
field("uint32", "analysis.resend_number", "Resends of this segment so far", base.DEC)
field("uint32", "analysis.missing", "Sequence numbers skipped", base.DEC)
field("framenum", "analysis.acks_frame", "Acknowledges frame", base.NONE, frametype.ACK)
field("relative_time", "analysis.ack_rtt", "Round trip of the acknowledged segment")
field("framenum", "analysis.duplicate_ack_frame", "First acknowledged in frame", base.NONE, frametype.DUP_ACK)
field("uint32", "analysis.in_flight", "Segments in flight", base.DEC)
field("framenum", "analysis.zero_window_frame", "Window closed since frame", base.NONE)
field("relative_time", "analysis.zero_window_time", "Window closed for")
field("framenum", "analysis.request_frame", "Answers frame", base.NONE, frametype.REQUEST)
field("relative_time", "analysis.response_time", "Time since that frame")

kcp.fields = all_fields

local e, all_experts = {}, {}
local function add_expert(name, text, group, severity)
  e[name] = ProtoExpert.new("kcp." .. name, text, group, severity)
  all_experts[#all_experts + 1] = e[name]
end

add_expert("malformed", "Malformed: receivers drop this and what follows in the packet", expert.group.MALFORMED, expert.severity.ERROR)
add_expert("ext.malformed", "Malformed extension segment", expert.group.MALFORMED, expert.severity.ERROR)
add_expert("trailing", "Bytes behind the last segment", expert.group.PROTOCOL, expert.severity.NOTE)
add_expert("encrypted", "Encrypted or not KCP", expert.group.UNDECODED, expert.severity.NOTE)
add_expert("cut", "The capture does not have all of this packet", expert.group.UNDECODED, expert.severity.NOTE)
add_expert("ext.unknown", "Unknown subtype: receivers skip it", expert.group.UNDECODED, expert.severity.NOTE)
add_expert("ext.field.unknown", "Unknown field", expert.group.UNDECODED, expert.severity.NOTE)
add_expert("frg.reserved", "Reserved value of frg", expert.group.PROTOCOL, expert.severity.NOTE)
add_expert("fec.shards_differ", "The shards in the preferences are not those of the sender", expert.group.PROTOCOL,
  expert.severity.NOTE)
add_expert("analysis.resend", "Resend", expert.group.SEQUENCE, expert.severity.NOTE)
add_expert("analysis.gap", "Gap", expert.group.SEQUENCE, expert.severity.WARN)
add_expert("analysis.out_of_order", "Out of order", expert.group.SEQUENCE, expert.severity.WARN)
add_expert("analysis.duplicate_ack", "Duplicate ACK", expert.group.SEQUENCE, expert.severity.NOTE)
add_expert("analysis.ack_unseen", "ACK of a segment that this capture does not have", expert.group.SEQUENCE, expert.severity.WARN)
add_expert("analysis.zero_window", "Zero window", expert.group.SEQUENCE, expert.severity.WARN)
add_expert("analysis.window_reopened", "Window open again", expert.group.SEQUENCE, expert.severity.CHAT)
add_expert("analysis.window_probe", "Window probe", expert.group.SEQUENCE, expert.severity.NOTE)
add_expert("analysis.address_probe", "Empty PUSH: it only asks for an ACK", expert.group.SEQUENCE, expert.severity.CHAT)
add_expert("analysis.mtu_probe", "PUSH that fills a probe of the path's MTU", expert.group.SEQUENCE, expert.severity.CHAT)
add_expert("analysis.fin", "End of the stream", expert.group.SEQUENCE, expert.severity.CHAT)
add_expert("analysis.past_end", "PUSH at or behind the end that FIN has told", expert.group.SEQUENCE, expert.severity.WARN)
add_expert("analysis.another_end", "FIN with another end than before", expert.group.SEQUENCE, expert.severity.WARN)
add_expert("analysis.abort", "The session is aborted", expert.group.SEQUENCE, expert.severity.WARN)
add_expert("analysis.reset", "The session is not known there", expert.group.SEQUENCE, expert.severity.WARN)
add_expert("analysis.refusal", "Key agreement is refused", expert.group.SEQUENCE, expert.severity.WARN)

kcp.experts = all_experts

-- ---- Preferences ----

local udp_ports = DissectorTable.get("udp.port")
udp_ports:add_for_decode_as(kcp)

kcp.prefs.ports = Pref.range("UDP ports", "", "Ports whose packets are KCP, encrypted or not, such as 4000,29900-29910", 65535)
kcp.prefs.data_shards = Pref.uint("FEC data shards", 0, "Data packets of an FEC group; 0 if unknown. kcptun has 10")
kcp.prefs.parity_shards = Pref.uint("FEC parity shards", 0, "Parity packets of an FEC group. kcptun has 3")
kcp.prefs.analysis = Pref.bool("Analyze sequence numbers", true, "Resends, gaps, windows, and which frame an ACK is for")

local ports = ""
function kcp.prefs_changed()
  if kcp.prefs.ports ~= ports then
    if ports ~= "" then udp_ports:remove(ports, kcp) end
    ports = kcp.prefs.ports
    if ports ~= "" then udp_ports:add(ports, kcp) end
  end
end

-- ---- Small helpers ----

local MODULUS = 2 ^ 32

-- How far `a` is behind `b`, as numbers that wrap: negative if it is before it.
local function distance(a, b)
  return (a - b + MODULUS / 2) % MODULUS - MODULUS / 2
end

local function number(tvb, at, len)
  return tvb(at, len):le_uint()
end

-- The range of what was captured of `len` bytes; nil if that is nothing.
local function range(tvb, at, len)
  local captured = math.min(len, tvb:captured_len() - at)
  if captured > 0 then return tvb(at, captured) end
end

local function raw(tvb, at, len)
  return tvb(at, len):raw()
end

local function duration(seconds)
  local micros = math.floor(math.abs(seconds) * 1e6 + 0.5)
  local whole, rest = math.floor(micros / 1000000), micros % 1000000 * 1000
  if seconds < 0 then whole, rest = -whole, -rest end
  return NSTime.new(whole, rest)
end

local function generated(tree, name, value)
  return tree:add(f[name], value):set_generated()
end

local function note(tree, name, text, ...)
  if not text then return tree:add_proto_expert_info(e[name]) end
  tree:add_proto_expert_info(e[name], string.format(text, ...))
end

local function counted(count, noun)
  return string.format("%d %s%s", count, noun, count == 1 and "" or "s")
end

-- ---- Reading a packet ----

-- Whether a segment is a message of key agreement: the last one, or HELLO or ANSWER with such a field.
local function agrees_on_keys(tvb, segment)
  if segment.cmd ~= EXTENSION then return false end
  if segment.frg == NOISE then return true end
  if segment.frg ~= HELLO and segment.frg ~= ANSWER then return false end
  local body = segment.at + HEADER_LEN
  local at, stop = body + HELLO_LEN, math.min(body + segment.len, tvb:captured_len())
  if at >= stop or raw(tvb, body, 4) ~= "kcp9" then return false end
  while at < stop do
    if number(tvb, at, 1) == MUST_UNDERSTAND + NOISE_FIELD then return true end
    if at + 3 > stop then return false end
    at = at + 3 + number(tvb, at + 1, 2)
  end
  return false
end

-- The segments from `from` to `to`, and what is wrong with what follows them. The third value says that the capture ends before they
-- do, or the ICMP message that quotes their packet.
local function read_segments(tvb, from, to, is_quoted)
  local list, at, captured = {}, from, tvb:captured_len()
  while at + HEADER_LEN <= to do
    if at + HEADER_LEN > captured then return list, nil, true end
    local segment = {
      at = at, conv = number(tvb, at, 4), cmd = number(tvb, at + 4, 1), frg = number(tvb, at + 5, 1),
      wnd = number(tvb, at + 6, 2), ts = number(tvb, at + 8, 4), sn = number(tvb, at + 12, 4), una = number(tvb, at + 16, 4),
      len = number(tvb, at + 20, 4),
    }
    if not COMMANDS[segment.cmd] then
      return list, { at = at, text = string.format("unknown command %d", segment.cmd) }
    elseif list[1] and segment.conv ~= list[1].conv then
      return list, { at = at, text = string.format("another conversation, 0x%08x", segment.conv) }
    elseif segment.len > to - at - HEADER_LEN and is_quoted then
      list[#list + 1] = segment
      return list, nil, true
    elseif segment.len > to - at - HEADER_LEN then
      local room = to - at - HEADER_LEN
      return list, { at = at, text = string.format("length of %d, but %s left", segment.len, counted(room, "byte")) }
    end
    segment.agrees = agrees_on_keys(tvb, segment)
    list[#list + 1] = segment
    at = at + HEADER_LEN + segment.len
  end
  if at < to and is_quoted then return list, nil, true end
  if at < to then return list, { at = at, text = counted(to - at, "byte") .. " left over", trailing = #list > 0 } end
  return list, nil, at > captured
end

-- Whether a segment has what every implementation sends, not only what receivers take. Strict, for the heuristic's sake.
local function is_plausible(tvb, segment)
  if segment.cmd == PUSH then return true end
  if segment.cmd ~= EXTENSION then return segment.len == 0 and (segment.frg == 0 or segment.frg == MARK) end
  local least = BODY_LEN[segment.frg]
  if not least or segment.len < least or segment.sn == 0 then return false end
  if segment.frg ~= HELLO and segment.frg ~= ANSWER then return true end
  local body = segment.at + HEADER_LEN
  return body + 4 > tvb:captured_len() or raw(tvb, body, 4) == "kcp9"
end

-- A packet whose FEC header or first segment begins at `framing`: a table with its `kind` and what is in it, or nil. If `strict`, only
-- whole packets that look like nothing else. `is_quoted` says that an ICMP message has the first bytes of the packet.
local function read_at(tvb, framing, strict, is_quoted)
  local total, captured = tvb:reported_len(), tvb:captured_len()
  if math.min(total, captured) < framing + FEC_HEADER_LEN then return nil end
  local packet = { framing = framing, kind = "segments", from = framing, to = total }
  local fec = number(tvb, framing + 4, 2)
  if FEC_TYPES[fec] then
    packet.seqid = number(tvb, framing, 4)
    packet.type = fec
    packet.from = framing + FEC_HEADER_LEN
    if fec == FEC_PARITY then
      packet.kind = "parity"
      if packet.from + 4 <= captured then packet.conv = number(tvb, packet.from, 4) end
      return not strict and packet or nil
    end
    local size = number(tvb, framing + SHARD_AT, 2)
    local fits = size >= 2 and framing + SHARD_AT + size <= total
    if strict and framing + SHARD_AT + size ~= total then return nil end
    if fits then
      packet.to = framing + SHARD_AT + size
    elseif is_quoted and size >= 2 then
      packet.cut = true
    else
      packet.problem = { at = framing + SHARD_AT, text = string.format("size of %d does not fit", size) }
    end
    if fec == OUT_OF_BAND then
      packet.kind = "datagram"
      if strict and (packet.seqid ~= NO_SEQID or packet.from + 4 > total) then return nil end
      if packet.problem then return packet end
      if packet.from + 4 > packet.to then
        packet.problem = { at = packet.from, text = "no conversation" }
      elseif packet.from + 4 <= captured then
        packet.conv = number(tvb, packet.from, 4)
      end
      return packet
    end
    packet.kind = "data"
    if strict and packet.seqid == NO_SEQID then return nil end
    if packet.problem then
      packet.segments = {}
      return packet
    end
  end
  packet.segments, packet.problem, packet.cut = read_segments(tvb, packet.from, packet.to, is_quoted)
  local first = packet.segments[1]
  if first then packet.conv = first.conv end
  if not packet.problem and packet.to < total then
    packet.problem = { at = packet.to, text = counted(total - packet.to, "byte") .. " behind the shard", trailing = true }
  end
  if strict then
    if not first or packet.problem then return nil end
    for _, segment in ipairs(packet.segments) do
      if not is_plausible(tvb, segment) then return nil end
    end
  end
  return packet
end

local function read_strictly(tvb, expected)
  local packet = read_at(tvb, expected, true)
  if packet then return packet end
  for _, framing in ipairs(FRAMINGS) do
    packet = framing ~= expected and read_at(tvb, framing, true)
    if packet then return packet end
  end
end

-- The index of a seqid in its group and the number of the group, by the preferences.
local function group_of(seqid)
  local data, parity = kcp.prefs.data_shards, kcp.prefs.parity_shards
  if data == 0 or parity == 0 or data + parity > 256 then return nil end
  local shards = data + parity
  return seqid % shards, math.floor(seqid / shards), data
end

-- Reads a packet that is said to be KCP. `framing` is that of the packets before it between the same addresses, nil if there was none.
-- `agreement` is there if the ends have agreed on keys: with the conversation, if there was only one that they have done so for.
local function read(tvb, framing, agreement, is_quoted)
  -- Of four billion sealed packets less than one reads as whole segments.
  local packet = read_strictly(tvb, framing or 0)
  if packet then return packet end
  local total = tvb:reported_len()
  packet = read_at(tvb, framing or 0, false, is_quoted)
  -- Which conversation a sealed packet is of cannot be seen. Where others are between these addresses, all that looks like their parity
  -- is taken for that, which sealed packets do once in 65,536.
  local is_parity = framing and packet and packet.kind == "parity"
  if agreement and not is_parity and (is_quoted or total >= SEALED_HEADER_LEN + SEALED_TAG_LEN) then
    return { framing = 0, kind = "sealed", from = 0, to = total, conv = agreement.conv, cut = is_quoted }
  end
  if framing then
    if packet and (packet.kind ~= "segments" or packet.segments[1] or packet.cut) then return packet end
    local problem = packet and packet.problem or { at = 0, text = "too short" }
    return { framing = 0, kind = "malformed", from = 0, to = total, problem = problem }
  end
  -- Ciphertext has the 2 bytes of a parity packet's type once in 65,536 packets, and a command with a length that fits never.
  if packet and packet.kind == "parity" then
    local index, _, data = group_of(packet.seqid)
    if index and index >= data then return packet end
  elseif packet and packet.segments and packet.segments[1] then
    return packet
  end
  return { framing = 0, kind = "opaque", from = 0, to = total }
end

-- ---- Sequence analysis ----

-- What the first pass over the capture has found, by frame; a frame may carry several UDP packets.
local results
-- The framing of the KCP packets between two addresses. Key agreement has none: it says nothing of other conversations there.
local framings
-- Conversations by addresses and conv.
local streams, stream_count
-- By addresses, those whose ends agree on keys: which of the two have spoken without keys since.
local agreed

local function forget()
  results, framings, streams, stream_count, agreed = {}, {}, {}, 0, {}
end
forget()
-- For each capture that is opened, and where it is read anew.
kcp.init = forget

-- What fills a probe of the path's MTU lies so far before the first segment in flight (R75 of the extensions).
local FILLER_BEHIND = 131072
-- Numbers that are so far apart are no gap: the session began anew. Windows have 65,535 segments at most.
local MAX_JUMP = FILLER_BEHIND + 65536
-- Segments older than that are forgotten.
local KEPT = 2 * MAX_JUMP
-- Requests that wait for their answers, in each direction of a stream.
local MAX_REQUESTS = 1024

local function addresses(pinfo)
  local source = string.format("%s:%d", tostring(pinfo.src), pinfo.src_port)
  local target = string.format("%s:%d", tostring(pinfo.dst), pinfo.dst_port)
  if source <= target then return source .. "|" .. target, 1 end
  return target .. "|" .. source, 2
end

local function stream_key(pair, conv)
  return string.format("%s|%d", pair, conv)
end

-- What is known of the sealed packets between two addresses: nil if nobody has agreed on keys there.
local function agreement_of(pair)
  local convs = agreed[pair]
  local conv = convs and next(convs)
  if not conv then return nil end
  return { conv = not next(convs, conv) and conv or nil }
end

local function new_direction()
  -- `sent`: by sn, what PUSH segments were sent. `requests`: HELLO by its ts, PING and TOKEN by the token.
  return { sent = {}, requests = {}, request_count = 0 }
end

local function stream_of(pair, conv)
  local key = stream_key(pair, conv)
  local stream = streams[key]
  if not stream then
    stream = { index = stream_count, new_direction(), new_direction() }
    stream_count = stream_count + 1
    streams[key] = stream
  end
  return stream
end

local function remember(direction, key, here)
  if direction.requests[key] then return end
  if direction.request_count >= MAX_REQUESTS then
    direction.requests, direction.request_count = {}, 0
  end
  direction.requests[key] = here
  direction.request_count = direction.request_count + 1
end

local function answered(direction, key, here, facts)
  local request = direction.requests[key]
  if request then facts.request = { frame = request.frame, after = here.time - request.time } end
end

local function on_push(mine, peer, segment, here, facts)
  local sn = segment.sn
  local entry = mine.sent[sn]
  if mine.next and math.abs(distance(sn, mine.next)) > MAX_JUMP then
    mine.next, mine.sent, entry = nil, {}, nil
  end
  local was_sent = entry and entry.first
  -- R62 of the extensions: an empty PUSH of a number that is no longer needed.
  local is_probe = segment.len == 0 and not (was_sent and entry.empty) and
    (was_sent or (mine.next and distance(sn, mine.next) < 0) or (not mine.next and sn == MODULUS - 1))
  local is_filler = segment.len > 0 and not was_sent and mine.next and distance(sn, mine.next) <= -FILLER_BEHIND
  if not entry then
    entry = { times = {} }
    mine.sent[sn] = entry
    mine.sent[(sn - KEPT) % MODULUS] = nil
  end
  if is_probe then
    facts.address_probe = true
  elseif is_filler then
    facts.mtu_probe = true
  elseif was_sent then
    entry.resends = (entry.resends or 0) + 1
    facts.resend = { frame = entry.first.frame, after = here.time - entry.first.time, number = entry.resends }
  else
    entry.first, entry.empty = here, segment.len == 0
    local ahead = mine.next and distance(sn, mine.next) or 0
    if ahead > 0 then facts.gap = ahead end
    if ahead < 0 then facts.out_of_order = true end
    if ahead >= 0 then mine.next = (sn + 1) % MODULUS end
  end
  -- An ACK echoes the ts of the transmission that it answers.
  entry.times[#entry.times + 1] = { ts = segment.ts, here = here }
  if peer.una and mine.next then
    local in_flight = distance(mine.next, peer.una)
    if in_flight >= 0 then facts.in_flight = in_flight end
  end
  if mine.fin and not is_probe and distance(sn, mine.fin) >= 0 then facts.past_end = mine.fin end
end

local function on_ack(peer, segment, here, facts)
  local entry = peer.sent[segment.sn]
  if not entry then
    -- Before the first PUSH that was captured nothing can be said.
    facts.ack_unseen = peer.next ~= nil
    return
  end
  for _, sent in ipairs(entry.times) do
    if sent.ts == segment.ts then
      facts.acks = { frame = sent.here.frame, rtt = here.time - sent.here.time }
      if sent.acked_in then facts.duplicate_ack = sent.acked_in else sent.acked_in = here.frame end
      return
    end
  end
  facts.acks = { frame = entry.times[#entry.times].here.frame }
end

local function on_window(mine, peer, segment, here, facts)
  -- Who has everything up to the peer's end tells a window of 0, and closes nothing.
  if segment.wnd == 0 and segment.una == peer.fin then
    mine.closed = nil
  elseif segment.wnd == 0 then
    facts.zero_window = true
    mine.closed = mine.closed or here
  elseif mine.closed then
    facts.reopened = { frame = mine.closed.frame, after = here.time - mine.closed.time }
    mine.closed = nil
  end
  if not mine.una or distance(segment.una, mine.una) > 0 then mine.una = segment.una end
end

local function on_extension(tvb, stream, way, segment, here, facts)
  local mine, peer = stream[way], stream[3 - way]
  local subtype, body = segment.frg, segment.at + HEADER_LEN
  if segment.len < (BODY_LEN[subtype] or 0) or body + math.min(segment.len, HELLO_LEN) > tvb:captured_len() then return end
  if subtype == HELLO or subtype == ANSWER then
    local id, tag = raw(tvb, body + 12, 8), number(tvb, body + 12, 4)
    if raw(tvb, body, 4) ~= "kcp9" or tag == 0 then return end
    if subtype == HELLO then
      if tag ~= segment.sn then return end
      if mine.id and mine.id ~= id then
        stream[way], stream[3 - way] = new_direction(), new_direction()
        mine = stream[way]
      end
      remember(mine, segment.ts, here)
    else
      answered(peer, number(tvb, body + 20, 4), here, facts)
      local at, stop = body + HELLO_LEN, math.min(body + segment.len, tvb:captured_len())
      while at + 3 <= stop do
        local kind, len = number(tvb, at, 1) % MUST_UNDERSTAND, number(tvb, at + 1, 2)
        if kind == TOKEN and len == 8 and at + 11 <= stop then remember(mine, raw(tvb, at + 3, 8), here) end
        at = at + 3 + len
      end
    end
    mine.id = id
  elseif subtype == RETRY then
    answered(peer, segment.ts, here, facts)
  elseif subtype == FIN then
    local first, stop = mine.first_fin, number(tvb, body, 4)
    if not first then
      mine.first_fin, mine.fin_resends, mine.fin = here, 0, stop
    elseif stop == mine.fin then
      mine.fin_resends = mine.fin_resends + 1
      facts.resend = { frame = first.frame, after = here.time - first.time, number = mine.fin_resends }
    else
      facts.another_end = mine.fin
    end
    mine.last_fin = here
  elseif subtype == FIN_ACK then
    if peer.last_fin then
      facts.request = { frame = peer.last_fin.frame, after = here.time - peer.last_fin.time }
    end
  elseif subtype == PING then
    remember(mine, raw(tvb, body, 8), here)
  elseif subtype == PONG or subtype == RESET then
    answered(peer, raw(tvb, body, 8), here, facts)
  end
end

-- Whether `wnd` and `una` of a segment mean what they do elsewhere.
local function tells_window(segment)
  if segment.cmd ~= EXTENSION then return true end
  if segment.agrees then return false end
  local subtype = segment.frg
  return SUBTYPES[subtype] and subtype ~= RETRY and subtype ~= ABORT and subtype ~= RESET
end

-- Takes in what a packet says of key agreement. Returns whether it is a part of it. Each part is alone in its packet.
local function follow_agreement(pair, way, packet)
  local first = packet.segments and packet.segments[1]
  if not first or not packet.conv then return packet.kind == "sealed" end
  local is_alone = packet.kind == "segments" and packet.framing == 0 and not packet.segments[2] and not packet.problem
  if is_alone and first.agrees then
    agreed[pair] = agreed[pair] or {}
    agreed[pair][packet.conv] = {}
    return true
  end
  local speaking = agreed[pair] and agreed[pair][packet.conv]
  if not speaking then return false end
  if is_alone and first.cmd == EXTENSION and (first.frg == RETRY or first.frg == ABORT) then return true end
  -- One end alone may be somebody who forges packets. Both are a later session of the same conversation, without keys.
  speaking[way] = true
  if speaking[3 - way] then agreed[pair][packet.conv] = nil end
  return false
end

-- Takes the packet in: the facts of each of its segments, in order.
local function analyze(tvb, pinfo, pair, way, packet)
  local stream = stream_of(pair, packet.conv)
  local found = { stream = stream.index }
  if not packet.segments or not kcp.prefs.analysis then return found end
  local here = { frame = pinfo.number, time = pinfo.rel_ts }
  for index, segment in ipairs(packet.segments) do
    local facts = {}
    if segment.cmd == EXTENSION then on_extension(tvb, stream, way, segment, here, facts) end
    -- A HELLO may have begun a new session.
    local mine, peer = stream[way], stream[3 - way]
    if segment.cmd == PUSH then on_push(mine, peer, segment, here, facts) end
    if segment.cmd == ACK then on_ack(peer, segment, here, facts) end
    if tells_window(segment) then on_window(mine, peer, segment, here, facts) end
    found[index] = facts
  end
  return found
end

-- ---- Showing it ----

-- Shows what was captured of `len` bytes at `at`. Returns the bytes behind them.
local function show_bytes(tree, name, tvb, at, len)
  local bytes = range(tvb, at, len)
  if bytes then tree:add(f[name], bytes) end
  return at + len
end

-- A message of key agreement in a segment of a subtype. Returns what is wrong with it.
local function show_message(tree, tvb, at, len, segment)
  local stop = at + len
  if range(tvb, at, len) then
    tree = tree:add(f["ext.noise"], range(tvb, at, len))
  end
  if len < NOISE_HEADER_LEN or at + NOISE_HEADER_LEN > tvb:captured_len() then
    show_bytes(tree, "ext.noise.rest", tvb, at, len)
    return len < NOISE_HEADER_LEN and "a message of " .. counted(len, "byte") or nil
  end
  local version, numbered, pattern = number(tvb, at, 1), number(tvb, at + 1, 1), number(tvb, at + 2, 1)
  tree:add(f["ext.noise.version"], tvb(at, 1))
  tree:add(f["ext.noise.number"], tvb(at + 1, 1))
  -- The first two bytes mean the same in all versions to come.
  local title = MESSAGES[numbered] or string.format("message %d", numbered)
  local terms = PATTERNS[pattern]
  local least, most, wrong
  if version ~= NOISE_VERSION then
    title = title .. string.format(" of version %d", version)
    at = at + 2
  elseif numbered == REFUSAL then
    tree:add(f["ext.noise.reason"], tvb(at + 2, 1))
    title = title .. ": " .. (REFUSALS[pattern] or string.format("reason %d", pattern))
    least, most = NOISE_HEADER_LEN, NOISE_HEADER_LEN
    at = at + 3
  else
    tree:add(f["ext.noise.pattern"], tvb(at + 2, 1))
    tree:add(f["ext.noise.cipher"], tvb(at + 3, 1))
    title = string.format("%s, %s", terms and terms.name or string.format("pattern %d", pattern), title)
    at = at + NOISE_HEADER_LEN
    if terms then
      least = terms[numbered]
      most = least
      if numbered == FIRST_MESSAGE and not terms[LAST_MESSAGE] then most = least + MAX_EARLY_DATA end
    end
  end
  tree:set_text("Message of key agreement: " .. title)
  segment.message = title
  if version == NOISE_VERSION and not MESSAGES_OF[segment.frg][numbered] then
    wrong = string.format("a message that belongs elsewhere: %s", title)
  elseif least and (len < least or len > most) then
    wrong = string.format("a message of %s, where %s has %d", counted(len, "byte"), title, least)
  elseif least and numbered ~= REFUSAL then
    if numbered == FIRST_MESSAGE and terms.has_hint then at = show_bytes(tree, "ext.noise.hint", tvb, at, HINT_LEN) end
    if numbered ~= LAST_MESSAGE then at = show_bytes(tree, "ext.noise.ephemeral", tvb, at, EPHEMERAL_LEN) end
    if len > least then generated(tree, "ext.noise.early_data", len - least) end
  end
  show_bytes(tree, "ext.noise.rest", tvb, at, stop - at)
  if numbered == REFUSAL and not wrong then
    note(tree, "analysis.refusal", "The peer refuses key agreement: %s", REFUSALS[pattern] or "for an unknown reason")
  end
  return wrong
end

local function show_field(tree, tvb, at, kind, len)
  local value = range(tvb, at, len)
  if not value then return end
  local is_whole = value:len() == len
  if kind == PAD then
    tree:add(f["ext.padding"], value)
  elseif kind == KEEP_ALIVE and is_whole and len == 4 then
    tree:add_le(f["ext.keep_alive"], value)
  elseif kind == COOKIE then
    tree:add(f["ext.cookie"], value)
  elseif kind == TOKEN then
    tree:add(f["ext.token"], value)
  elseif kind == UNSUPPORTED then
    tree:add(f["ext.unsupported"], value)
  elseif kind == MAX_PACKET and is_whole and len == 2 then
    tree:add_le(f["ext.max_packet"], value)
  elseif kind == RESET_KEY then
    tree:add(f["ext.reset_key"], value)
  else
    tree:add(f["ext.field.value"], value)
  end
end

local WRONG_LENGTH = {
  [KEEP_ALIVE] = function(len) return len ~= 4 end,
  [COOKIE] = function(len) return len < 1 or len > MAX_COOKIE_LEN end,
  [TOKEN] = function(len) return len ~= 8 end,
  [MAX_PACKET] = function(len) return len ~= 2 end,
  [RESET_KEY] = function(len) return len ~= 16 end,
}

-- The fields of a segment from `at` to `to`. Returns which there are, and what is wrong with them.
local function show_fields(tree, tvb, at, to, segment)
  local seen, wrong = {}, nil
  while at < to do
    if to - at < 3 then return seen, wrong or counted(to - at, "byte") .. " left over behind the fields" end
    if at + 3 > tvb:captured_len() then return seen, wrong end
    local byte, len = number(tvb, at, 1), number(tvb, at + 1, 2)
    local kind = byte % MUST_UNDERSTAND
    local name = KINDS[kind] or string.format("0x%02x", kind)
    local fits = len <= to - at - 3
    local item = tree:add(f["ext.field"], range(tvb, at, 3 + math.min(len, to - at - 3)))
    item:set_text(string.format("Field: %s, %s", name, counted(len, "byte")))
    item:add(f["ext.field.type"], tvb(at, 1))
    item:add(f["ext.field.must_understand"], tvb(at, 1))
    item:add_le(f["ext.field.len"], tvb(at + 1, 2))
    if not fits then return seen, wrong or string.format("%s goes past the end", name) end
    local is_message = byte == MUST_UNDERSTAND + NOISE_FIELD and MESSAGES_OF[segment.frg]
    if is_message then
      local in_message = show_message(item, tvb, at + 3, len, segment)
      wrong = wrong or in_message
    else
      show_field(item, tvb, at + 3, kind, len)
    end
    if WRONG_LENGTH[kind] and WRONG_LENGTH[kind](len) then
      wrong = wrong or string.format("%s of %s", name, counted(len, "byte"))
    end
    if kind ~= PAD and seen[kind] then wrong = wrong or name .. " occurs twice" end
    if not KINDS[kind] or (kind == NOISE_FIELD and not is_message) then
      note(item, "ext.field.unknown", byte >= MUST_UNDERSTAND and "Unknown field that must be understood" or nil)
    end
    seen[kind] = true
    at = at + 3 + len
  end
  return seen, wrong
end

local function show_hello(tree, tvb, segment, body)
  tree:add(f["ext.magic"], tvb(body, 4))
  tree:add(f["ext.version"], tvb(body + 4, 1))
  tree:add(f["ext.oldest"], tvb(body + 5, 1))
  local caps = tree:add_le(f["ext.caps"], tvb(body + 8, 4))
  for _, cap in ipairs(CAPS) do
    caps:add_le(f["ext.caps." .. cap[1]], tvb(body + 8, 4))
  end
  tree:add(f["ext.id"], tvb(body + 12, 8))
  tree:add_le(f["ext.echo_ts"], tvb(body + 20, 4))
  local version, oldest, tag = number(tvb, body + 4, 1), number(tvb, body + 5, 1), number(tvb, body + 12, 4)
  local _, wrong = show_fields(tree, tvb, body + HELLO_LEN, body + segment.len, segment)
  if raw(tvb, body, 4) ~= "kcp9" then return "another magic" end
  if version == 0 or oldest > version then return "versions that cannot be" end
  if tag == 0 or (segment.frg == HELLO and tag ~= segment.sn) then return "the tag is not that of the id" end
  return wrong
end

-- The body of an extension segment. Returns what is wrong with it.
local function show_extension(tree, tvb, segment)
  local subtype, body, len = segment.frg, segment.at + HEADER_LEN, segment.len
  local least = BODY_LEN[subtype]
  if not least then
    if range(tvb, body, len) then tree:add(f["ext.body"], range(tvb, body, len)) end
    note(tree, "ext.unknown")
    return
  end
  local wrong = segment.sn == 0 and "a tag of 0" or nil
  if len < least then
    if range(tvb, body, len) then tree:add(f["ext.body"], range(tvb, body, len)) end
    return wrong or string.format("%s, where at least %d are needed", counted(len, "byte"), least)
  end
  if body + least > tvb:captured_len() then return wrong end
  local shown = least
  if subtype == HELLO or subtype == ANSWER then
    local in_hello = show_hello(tree, tvb, segment, body)
    wrong, shown = wrong or in_hello, len
  elseif subtype == RETRY then
    local seen, in_fields = show_fields(tree, tvb, body, body + len, segment)
    wrong, shown = wrong or in_fields or (not seen[COOKIE] and "no cookie" or nil), len
  elseif subtype == NOISE then
    local in_message = show_message(tree, tvb, body, len, segment)
    wrong, shown = wrong or in_message, len
  elseif subtype == FIN or subtype == FIN_ACK then
    tree:add_le(f["ext.end"], tvb(body, 4))
    tree:add(f["ext.flags"], tvb(body + 4, 1)):add(f["ext.no_reader"], tvb(body + 4, 1))
  elseif subtype == RESET or subtype == PING or subtype == PONG then
    tree:add(f["ext.token"], tvb(body, 8))
  elseif subtype == ECN then
    tree:add_le(f["ext.ect0"], tvb(body, 4))
    tree:add_le(f["ext.ect1"], tvb(body + 4, 4))
    tree:add_le(f["ext.ce"], tvb(body + 8, 4))
  end
  local rest = range(tvb, body + shown, len - shown)
  if rest then tree:add(subtype == PING and f["ext.padding"] or f["ext.body"], rest) end
  return wrong
end

-- What the analysis has found of a segment. Its marks go to the Info column.
local function show_facts(tree, facts, marks)
  local function mark(text)
    if not marks[text] then
      marks[text] = true
      marks[#marks + 1] = text
    end
  end
  if facts.resend then
    local resend = facts.resend
    note(tree, "analysis.resend", "Resend of frame %d, %.3f ms later", resend.frame, resend.after * 1000)
    generated(tree, "analysis.resend_frame", resend.frame)
    generated(tree, "analysis.resend_time", duration(resend.after))
    generated(tree, "analysis.resend_number", resend.number)
    mark("Resend")
  end
  if facts.gap then
    note(tree, "analysis.gap", "Gap: %s not been captured before this one", counted(facts.gap, "segment") ..
      (facts.gap == 1 and " has" or " have"))
    generated(tree, "analysis.missing", facts.gap)
    mark("Gap")
  end
  if facts.out_of_order then
    note(tree, "analysis.out_of_order", "Out of order, or a resend of what was not captured")
    mark("Out of order")
  end
  if facts.address_probe then
    note(tree, "analysis.address_probe")
    mark("Address probe")
  end
  if facts.mtu_probe then
    note(tree, "analysis.mtu_probe")
    mark("MTU probe")
  end
  if facts.in_flight then generated(tree, "analysis.in_flight", facts.in_flight) end
  if facts.past_end then
    note(tree, "analysis.past_end", "PUSH at or behind the end that FIN has told: %d", facts.past_end)
  end
  if facts.another_end then
    note(tree, "analysis.another_end", "FIN with another end than before, %d: receivers drop it", facts.another_end)
  end
  if facts.acks then
    generated(tree, "analysis.acks_frame", facts.acks.frame)
    if facts.acks.rtt then generated(tree, "analysis.ack_rtt", duration(facts.acks.rtt)) end
  end
  if facts.duplicate_ack then
    note(tree, "analysis.duplicate_ack", "Duplicate ACK: the first one was in frame %d", facts.duplicate_ack)
    generated(tree, "analysis.duplicate_ack_frame", facts.duplicate_ack)
    mark("Dup ACK")
  end
  if facts.ack_unseen then
    note(tree, "analysis.ack_unseen", "ACK of a segment that this capture does not have, lost before it or restored by FEC")
    mark("ACK of unseen")
  end
  if facts.zero_window then
    note(tree, "analysis.zero_window")
    mark("Zero window")
  end
  if facts.reopened then
    note(tree, "analysis.window_reopened", "Window open again, closed since frame %d", facts.reopened.frame)
    generated(tree, "analysis.zero_window_frame", facts.reopened.frame)
    generated(tree, "analysis.zero_window_time", duration(facts.reopened.after))
    mark("Window open")
  end
  if facts.request then
    generated(tree, "analysis.request_frame", facts.request.frame)
    generated(tree, "analysis.response_time", duration(facts.request.after))
  end
end

-- Notes that need no other packet.
local function show_notes(tree, tvb, segment)
  if segment.cmd == WASK then note(tree, "analysis.window_probe") end
  if segment.cmd ~= EXTENSION then return end
  local body = segment.at + HEADER_LEN
  if segment.frg == FIN and segment.len >= BODY_LEN[FIN] and body + 4 <= tvb:captured_len() then
    note(tree, "analysis.fin", "The stream of this sender ends at sn %d", number(tvb, body, 4))
  elseif segment.frg == ABORT then
    note(tree, "analysis.abort")
  elseif segment.frg == RESET then
    note(tree, "analysis.reset")
  end
end

local function name_of(segment)
  if segment.cmd ~= EXTENSION then return COMMANDS[segment.cmd] end
  return SUBTYPES[segment.frg] or string.format("extension 0x%02x", segment.frg)
end

local function show_segment(tree, tvb, segment, facts, marks)
  local at = segment.at
  local item = tree:add(f.segment, range(tvb, at, HEADER_LEN + segment.len))
  local title = string.format("Segment: %s", name_of(segment))
  if segment.cmd == PUSH or segment.cmd == ACK then title = title .. string.format(", sn %d", segment.sn) end
  if segment.len > 0 then title = title .. ", " .. counted(segment.len, "byte") end
  item:set_text(title)
  item:add_le(f.conv, tvb(at, 4))
  item:add(f.cmd, tvb(at + 4, 1))
  local is_extension = segment.cmd == EXTENSION
  if is_extension then
    item:add(f["ext.subtype"], tvb(at + 5, 1))
  else
    local frg = item:add(f.frg, tvb(at + 5, 1))
    if segment.frg == MARK and (segment.cmd ~= PUSH or segment.len == 0) then
      frg:append_text(" (mark)")
      item:add(f["ext.mark"], tvb(at + 5, 1), true)
    elseif segment.cmd ~= PUSH and segment.frg ~= 0 then
      note(frg, "frg.reserved")
    end
  end
  if is_extension and segment.frg == ABORT then
    item:add_le(f["ext.reason"], tvb(at + 6, 2))
  else
    item:add_le(f.wnd, tvb(at + 6, 2))
  end
  item:add_le(f.ts, tvb(at + 8, 4))
  item:add_le(is_extension and f["ext.tag"] or f.sn, tvb(at + 12, 4))
  item:add_le(f.una, tvb(at + 16, 4))
  item:add_le(f.len, tvb(at + 20, 4))
  if is_extension then
    local wrong = show_extension(item, tvb, segment)
    if wrong then
      note(item, "ext.malformed", "Malformed extension segment, which receivers drop: %s", wrong)
      marks[#marks + 1] = "Malformed"
    end
  elseif range(tvb, at + HEADER_LEN, segment.len) then
    item:add(f.data, range(tvb, at + HEADER_LEN, segment.len))
  end
  show_notes(item, tvb, segment)
  if facts then show_facts(item, facts, marks) end
end

-- The numbers of segments: 3-5,9.
local MAX_RUNS = 6
local function runs_text(runs)
  local parts = {}
  for index, run in ipairs(runs) do
    if index > MAX_RUNS then
      parts[#parts + 1] = "..."
      break
    end
    parts[#parts + 1] = run[1] == run[2] and string.format("%d", run[1]) or string.format("%d-%d", run[1], run[2])
  end
  return table.concat(parts, ",")
end

-- What the Info column says of the segments. Those of a kind that follow each other are told together.
local function summary(segments)
  local groups = {}
  for _, segment in ipairs(segments) do
    local name, group = name_of(segment), groups[#groups]
    if not group or group.name ~= name then
      group = { name = name, len = 0, runs = {}, cmd = segment.cmd, message = segment.message }
      groups[#groups + 1] = group
    end
    group.len = group.len + segment.len
    local run = group.runs[#group.runs]
    if run and segment.sn == (run[2] + 1) % MODULUS then
      run[2] = segment.sn
    else
      group.runs[#group.runs + 1] = { segment.sn, segment.sn }
    end
  end
  local parts = {}
  for _, group in ipairs(groups) do
    local text = group.name
    if group.cmd == PUSH or group.cmd == ACK then text = text .. " sn=" .. runs_text(group.runs) end
    if group.cmd == PUSH then text = text .. string.format(" len=%d", group.len) end
    if group.message then text = string.format("%s (%s)", text, group.message) end
    parts[#parts + 1] = text
  end
  return table.concat(parts, ", ")
end

local function show_framing(tree, tvb, framing)
  if framing == 0 then return end
  tree:add(f.nonce, tvb(0, NONCE_LEN))
  if framing == NONCE_LEN + 4 then
    tree:add_le(f.checksum, tvb(NONCE_LEN, 4))
  else
    tree:add(f.tag, tvb(NONCE_LEN, 8))
  end
end

local function show_fec(tree, tvb, packet)
  local at = packet.framing
  tree:add_le(f["fec.seqid"], tvb(at, 4))
  tree:add_le(f["fec.type"], tvb(at + 4, 2))
  if packet.kind ~= "parity" then tree:add_le(f["fec.size"], tvb(at + SHARD_AT, 2)) end
  local index, group, data = group_of(packet.seqid)
  if index and packet.kind ~= "datagram" then
    generated(tree, "fec.group", group)
    generated(tree, "fec.index", index)
    if (packet.kind == "data") ~= (index < data) then note(tree, "fec.shards_differ") end
  end
end

-- Nothing of it can be read. Its conversation is that of the agreement that was seen. Returns the text of the Info column.
local function show_sealed(tree, tvb, packet)
  local item = tree:add(f.sealed, range(tvb, 0, packet.to))
  -- What an ICMP message quotes does not say where the packet ends.
  local len = packet.to - SEALED_HEADER_LEN - (packet.cut and 0 or SEALED_TAG_LEN)
  item:set_text(packet.cut and "Sealed packet" or string.format("Sealed packet, %s of payload", counted(len, "byte")))
  if packet.conv then generated(item, "conv", packet.conv) end
  if tvb:captured_len() >= 4 then item:add_le(f["sealed.route"], tvb(0, 4)) end
  if tvb:captured_len() >= SEALED_HEADER_LEN then
    item:add_le(f["sealed.masked"], tvb(4, 4))
    local tag_at = show_bytes(item, "sealed.payload", tvb, SEALED_HEADER_LEN, len)
    if not packet.cut then show_bytes(item, "sealed.tag", tvb, tag_at, SEALED_TAG_LEN) end
  end
  return packet.cut and "Sealed" or string.format("Sealed len=%d", len)
end

-- Shows the packet, and returns the text of the Info column.
local function show(tree, tvb, packet, found)
  local marks, parts = {}, {}
  if packet.kind == "opaque" then
    if range(tvb, 0, packet.to) then tree:add(f.rest, range(tvb, 0, packet.to)) end
    note(tree, "encrypted")
    return "Encrypted or not KCP, " .. counted(packet.to, "byte")
  end
  show_framing(tree, tvb, packet.framing)
  if found and found.stream then generated(tree, "stream", found.stream) end
  if packet.seqid then show_fec(tree, tvb, packet) end
  if packet.kind == "parity" then
    -- Parity is computed over the size, too. Of equal bytes it is that byte again, and every packet of the group has its conv here.
    if packet.conv then tree:add_le(f.conv, tvb(packet.from, 4)):append_text(" (that of the group)") end
    local parity = range(tvb, packet.framing + SHARD_AT, packet.to - packet.framing - SHARD_AT)
    if parity then tree:add(f["fec.parity"], parity) end
    parts[1] = string.format("FEC parity seqid=%d", packet.seqid)
  elseif packet.kind == "datagram" then
    local len = math.max(packet.to - packet.from - 4, 0)
    if packet.conv and not packet.problem then
      tree:add_le(f.conv, tvb(packet.from, 4))
      if range(tvb, packet.from + 4, len) then tree:add(f.datagram, range(tvb, packet.from + 4, len)) end
    end
    parts[1] = string.format("Datagram len=%d", len)
  elseif packet.kind == "sealed" then
    parts[1] = show_sealed(tree, tvb, packet)
  elseif packet.kind == "malformed" then
    parts[1] = counted(packet.to, "byte")
  else
    if packet.kind == "data" then parts[1] = string.format("FEC data seqid=%d", packet.seqid) end
    for index, segment in ipairs(packet.segments or {}) do
      show_segment(tree, tvb, segment, found and found[index], marks)
    end
    if packet.segments and packet.segments[1] then parts[#parts + 1] = summary(packet.segments) end
  end
  local problem = packet.problem
  if problem then
    local rest = range(tvb, problem.at, tvb:captured_len() - problem.at)
    local item = rest and tree:add(f.rest, rest) or tree
    note(item, problem.trailing and "trailing" or "malformed", problem.trailing and "%s" or
      "Malformed: %s. Receivers drop this and what follows in the packet", problem.text)
    if not problem.trailing then marks[#marks + 1] = "Malformed" end
  end
  if packet.cut or tvb:captured_len() < tvb:reported_len() then note(tree, "cut") end
  local text = table.concat(parts, ", ")
  if packet.conv then text = text .. string.format(" conv=0x%08x", packet.conv) end
  local last = packet.segments and packet.segments[#packet.segments]
  if last and tells_window(last) then text = text .. string.format(" una=%d wnd=%d", last.una, last.wnd) end
  if #marks > 0 then text = "[" .. table.concat(marks, ", ") .. "] " .. text end
  return text
end

-- ---- The dissector ----

local function dissect(tvb, pinfo, root, packet)
  local pair, way = addresses(pinfo)
  local key = string.format("%d|%d", pinfo.number, tvb:offset())
  local result = results[key]
  if not result then
    result = { framing = framings[pair], agreement = agreement_of(pair), found = nil }
    packet = packet or read(tvb, result.framing, result.agreement, pinfo.in_error_pkt)
    -- A packet in an ICMP message was not sent here.
    if packet.kind ~= "opaque" and packet.kind ~= "malformed" and not pinfo.in_error_pkt then
      if not follow_agreement(pair, way, packet) then framings[pair] = packet.framing end
      if packet.conv then result.found = analyze(tvb, pinfo, pair, way, packet) end
    end
    results[key] = result
  end
  -- A later pass reads the packet with what was known then.
  packet = packet or read(tvb, result.framing, result.agreement, pinfo.in_error_pkt)
  pinfo.cols.protocol:set("KCP")
  local tree = root:add(kcp, tvb())
  local text = show(tree, tvb, packet, result.found)
  if packet.conv then tree:append_text(string.format(", conversation 0x%08x", packet.conv)) end
  pinfo.cols.info:set(string.format("%d → %d %s", pinfo.src_port, pinfo.dst_port, text))
  return tvb:captured_len()
end

-- For the ports that a user has chosen, and for packets between addresses where the heuristic has found KCP.
function kcp.dissector(tvb, pinfo, root)
  if tvb:captured_len() == 0 then return 0 end
  return dissect(tvb, pinfo, root)
end

-- Packets of no known port. What is taken for KCP has a chain of segments that ends with the packet, or an FEC header whose size fits
-- around one. Parity and what does not parse is taken only between addresses where there was such a packet.
kcp:register_heuristic("udp", function(tvb, pinfo, root)
  if tvb:captured_len() < FEC_HEADER_LEN then return false end
  local packet = read_strictly(tvb, 0)
  if not packet then return false end
  pinfo.conversation = kcp
  dissect(tvb, pinfo, root, packet)
  return true
end)
