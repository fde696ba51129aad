// SPDX-License-Identifier: MIT

//go:build v5

package main

import kcp "github.com/xtaci/kcp-go/v5"

type (
	session    = kcp.UDPSession
	listener   = kcp.Listener
	blockCrypt = kcp.BlockCrypt
)

var (
	listen     = kcp.ListenWithOptions
	dial       = kcp.DialWithOptions
	newSalsa20 = kcp.NewSalsa20BlockCrypt
	newAESGCM  = kcp.NewAESGCMCrypt
)
