// SPDX-License-Identifier: MIT

//go:build !v5

package main

import (
	"errors"

	kcp "github.com/xtaci/kcp-go"
)

type (
	session    = kcp.UDPSession
	listener   = kcp.Listener
	blockCrypt = kcp.BlockCrypt
)

var (
	listen     = kcp.ListenWithOptions
	dial       = kcp.DialWithOptions
	newSalsa20 = kcp.NewSalsa20BlockCrypt
)

func newAESGCM([]byte) (blockCrypt, error) {
	return nil, errors.New("this release has no AEADs")
}
