// SPDX-License-Identifier: MIT

// Command smux-peer is Go's smux on the other end of a TCP connection.
//
//	smux-peer serve --version 1|2
//	smux-peer drive --version 1|2 --addr HOST:PORT --streams N --bytes N
//
// serve prints "listening HOST:PORT", accepts sessions, and echoes each stream until
// its end. Per session it also opens a stream of its own for every stream that it
// accepts when told --open: it writes --bytes bytes to it and closes it.
//
// drive opens N streams, writes N bytes to each and compares what comes back; it then
// closes them, leaves the session idle for --idle, and drives one more stream. It
// accepts the streams that the server opens, reads them to their end, and prints one
// line of JSON: how many streams and bytes it has verified. It exits 1 on any error.
//
// Debian's package (golang-github-xtaci-smux-dev, 1.5.16) builds this file with
//
//	GO111MODULE=off GOPATH=/usr/share/gocode go build -o smux-peer main.go
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/xtaci/smux"
)

type options struct {
	addr            string
	version         int
	streams, bytes  int
	keepAlive, idle time.Duration
	open            bool
}

func main() {
	if len(os.Args) < 2 {
		fail(errors.New("say serve or drive"))
	}
	var o options
	f := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	f.StringVar(&o.addr, "addr", "127.0.0.1:0", "where to listen, or to connect to")
	f.IntVar(&o.version, "version", 1, "of smux, 1 or 2")
	f.IntVar(&o.streams, "streams", 20, "how many at a time")
	f.IntVar(&o.bytes, "bytes", 300000, "of each stream and direction")
	f.DurationVar(&o.keepAlive, "keepalive", 10*time.Second, "between two NOPs; a session is dead after three times that")
	f.DurationVar(&o.idle, "idle", 0, "how long drive leaves its session idle")
	f.BoolVar(&o.open, "open", false, "serve opens a stream for each that it accepts")
	f.Parse(os.Args[2:])
	var err error
	if os.Args[1] == "serve" {
		err = serve(o)
	} else {
		err = drive(o)
	}
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func (o options) config() *smux.Config {
	config := smux.DefaultConfig()
	config.Version = o.version
	config.KeepAliveInterval = o.keepAlive
	config.KeepAliveTimeout = 3 * o.keepAlive
	return config
}

// pattern is byte `at` of stream `id` in the direction that `from` names.
func pattern(id uint32, from byte, at int) byte {
	return byte(uint32(at)*31 + uint32(at>>8)*7 + id*13 + uint32(from))
}

func fill(id uint32, from byte, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = pattern(id, from, i)
	}
	return b
}

func verify(id uint32, from byte, b []byte, want int) error {
	if len(b) != want {
		return fmt.Errorf("stream %d: %d bytes came, not %d", id, len(b), want)
	}
	for i := range b {
		if b[i] != pattern(id, from, i) {
			return fmt.Errorf("stream %d: byte %d is wrong", id, i)
		}
	}
	return nil
}

func serve(o options) error {
	listener, err := net.Listen("tcp", o.addr)
	if err != nil {
		return err
	}
	fmt.Printf("listening %s\n", listener.Addr())
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		session, err := smux.Server(conn, o.config())
		if err != nil {
			return err
		}
		go func() {
			defer session.Close()
			for {
				stream, err := session.AcceptStream()
				if err != nil {
					return
				}
				// The end of what comes closes the stream as a whole: 1.5.16 has nothing else.
				go func() {
					io.Copy(stream, stream)
					stream.Close()
				}()
				if o.open {
					go func() {
						own, err := session.OpenStream()
						if err == nil {
							own.Write(fill(own.ID(), 's', o.bytes))
							own.Close()
						}
					}()
				}
			}
		}()
	}
}

func drive(o options) error {
	conn, err := net.Dial("tcp", o.addr)
	if err != nil {
		return err
	}
	session, err := smux.Client(conn, o.config())
	if err != nil {
		return err
	}
	var streams, bytes int64
	// The server opens a stream for each of ours.
	accepted := make(chan error, o.streams+10)
	go func() {
		for {
			stream, err := session.AcceptStream()
			if err != nil {
				return
			}
			go func() {
				b, err := io.ReadAll(stream)
				if err == nil {
					err = verify(stream.ID(), 's', b, o.bytes)
				}
				atomic.AddInt64(&streams, 1)
				atomic.AddInt64(&bytes, int64(len(b)))
				// The end of the session would say nothing of the stream's.
				stream.Close()
				accepted <- err
			}()
		}
	}()
	one := func() error {
		stream, err := session.OpenStream()
		if err != nil {
			return err
		}
		defer stream.Close()
		go stream.Write(fill(stream.ID(), 'c', o.bytes))
		b := make([]byte, o.bytes)
		if _, err := io.ReadFull(stream, b); err != nil {
			return fmt.Errorf("stream %d: %w", stream.ID(), err)
		}
		atomic.AddInt64(&streams, 1)
		atomic.AddInt64(&bytes, int64(len(b)))
		return verify(stream.ID(), 'c', b, o.bytes)
	}
	done := make(chan error)
	for i := 0; i < o.streams; i++ {
		go func() { done <- one() }()
	}
	for i := 0; i < o.streams; i++ {
		if err := <-done; err != nil {
			return err
		}
	}
	time.Sleep(o.idle)
	if err := one(); err != nil {
		return fmt.Errorf("after the pause: %w", err)
	}
	for i := 0; i < o.streams+1; i++ {
		select {
		case err := <-accepted:
			if err != nil {
				return err
			}
		case <-time.After(30 * time.Second):
			return fmt.Errorf("the server has opened %d streams", i)
		}
	}
	if err := session.Close(); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]int64{"streams": streams, "bytes": bytes})
}
