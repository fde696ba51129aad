// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"fmt"
	"io"
)

const (
	window  = 1024    // segments, each way
	sockbuf = 4 << 20 // bytes, each way
	mtu     = 1400    // bytes of UDP payload
)

// The comparison encrypts for the cost of it: any key will do.
var key = bytes.Repeat([]byte{7}, 32)

// cipher makes the cipher and tells the shards of FEC. Every session gets a cipher
// of its own: kcp-go 5.6.1 keeps scratch space inside it.
func cipher(o *options) (block blockCrypt, data, parity int, err error) {
	switch o.crypt {
	case "plain":
	case "aes-128-gcm":
		block, err = newAESGCM(key[:16])
	case "salsa20-fec":
		data, parity = 10, 3
		block, err = newSalsa20(key)
	default:
		err = fmt.Errorf("unknown crypt %s", o.crypt)
	}
	return
}

// tune sets what both ends need: the fastest of the usual presets.
func tune(s *session) {
	s.SetStreamMode(true)
	s.SetNoDelay(1, 10, 2, 1)
	s.SetWindowSize(window, window)
	s.SetACKNoDelay(false)
	s.SetMtu(mtu)
}

func bind(o *options) (*listener, error) {
	block, data, parity, err := cipher(o)
	if err != nil {
		return nil, err
	}
	l, err := listen("127.0.0.1:0", block, data, parity)
	if err != nil {
		return nil, err
	}
	if err := l.SetReadBuffer(sockbuf); err != nil {
		return nil, err
	}
	return l, l.SetWriteBuffer(sockbuf)
}

// connect opens a session and has the server say that it is there.
func connect(o *options) (*session, error) {
	block, data, parity, err := cipher(o)
	if err != nil {
		return nil, err
	}
	s, err := dial(o.addr, block, data, parity)
	if err != nil {
		return nil, err
	}
	if err := s.SetReadBuffer(sockbuf); err != nil {
		return nil, err
	}
	if err := s.SetWriteBuffer(sockbuf); err != nil {
		return nil, err
	}
	tune(s)
	hello := []byte{1}
	if _, err := s.Write(hello); err != nil {
		return nil, err
	}
	_, err = io.ReadFull(s, hello)
	return s, err
}
