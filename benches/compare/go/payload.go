// SPDX-License-Identifier: MIT

package main

import "encoding/binary"

// payload is the stream of bytes that a connection carries: the generator of the
// Rust peers, so that making and checking it costs all of them about the same.
type payload struct {
	seed     uint64
	position uint64
}

// gamma is the golden ratio's odd 64-bit fraction: multiples of it spread evenly.
const gamma = 0x9e3779b97f4a7c15

func newPayload(index int) *payload {
	return &payload{seed: mix((1<<20 + uint64(index)) * 0xd1342543de82ef95)}
}

func mix(state uint64) uint64 {
	x := state ^ state>>29
	return x ^ x<<17
}

func (p *payload) word() uint64 { return mix(p.seed + p.position/8*gamma) }

// fill writes the next bytes; all writes but a connection's last are whole words.
func (p *payload) fill(out []byte) {
	state := p.seed + p.position/8*gamma
	p.position += uint64(len(out))
	for len(out) >= 8 {
		binary.LittleEndian.PutUint64(out, mix(state))
		state += gamma
		out = out[8:]
	}
	var last [8]byte
	binary.LittleEndian.PutUint64(last[:], mix(state))
	copy(out, last[:])
}

// check tells whether in holds the next bytes. Reads end anywhere.
func (p *payload) check(in []byte) bool {
	for len(in) > 0 && p.position%8 != 0 {
		if in[0] != byte(p.word()>>(p.position%8*8)) {
			return false
		}
		p.position++
		in = in[1:]
	}
	state := p.seed + p.position/8*gamma
	for len(in) >= 8 {
		if binary.LittleEndian.Uint64(in) != mix(state) {
			return false
		}
		state += gamma
		p.position += 8
		in = in[8:]
	}
	for _, b := range in {
		if b != byte(p.word()>>(p.position%8*8)) {
			return false
		}
		p.position++
	}
	return true
}
