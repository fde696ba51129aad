// SPDX-License-Identifier: MIT

// Command lab-kcp-go is a flow's two ends on kcp-go. It says and reads the lines
// of the ends in Rust (src/flow):
//
//	lab-kcp-go receive HOST:PORT
//	lab-kcp-go send HOST:PORT
//
// Debian's package golang-github-xtaci-kcp-dev builds it.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"time"

	kcp "github.com/xtaci/kcp-go"
)

const (
	window  = 1024    // segments, each way: kcptun's of servers
	sockbuf = 4 << 20 // bytes, each way
	mtu     = 1400    // bytes of UDP payload
	chunk   = 64 << 10
	bin     = 100 * time.Millisecond
)

func main() {
	if len(os.Args) != 3 {
		fail(fmt.Errorf("usage: lab-kcp-go receive|send HOST:PORT"))
	}
	var err error
	switch os.Args[1] {
	case "receive":
		err = receive(os.Args[2])
	case "send":
		err = send(os.Args[2])
	default:
		err = fmt.Errorf("unknown command %s", os.Args[1])
	}
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "lab-kcp-go:", err)
	os.Exit(1)
}

// clock is the scenario's: when it begins, when the flow starts, and when all ends.
type clock struct{ begin, start, end time.Time }

// wait says that this end is ready, and waits to be told the times.
func wait() (*clock, error) {
	fmt.Println("ready")
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil {
		return nil, err
	}
	var begin, start, end int64
	if _, err := fmt.Sscan(line, &begin, &start, &end); err != nil {
		return nil, err
	}
	now := time.Now()
	// Relative to a time that has a monotonic reading, as steps of the wall clock must not matter.
	b := now.Add(time.Unix(0, begin).Sub(now))
	ms := func(n int64) time.Time { return b.Add(time.Duration(n) * time.Millisecond) }
	return &clock{b, ms(start), ms(end)}, nil
}

// tune sets kcptun's fast3, the fastest of the usual presets, which has no
// congestion control.
func tune(s *kcp.UDPSession) {
	s.SetStreamMode(true)
	s.SetNoDelay(1, 10, 2, 1)
	s.SetWindowSize(window, window)
	s.SetACKNoDelay(false)
	s.SetMtu(mtu)
}

func receive(addr string) error {
	l, err := kcp.ListenWithOptions(addr, nil, 0, 0)
	if err != nil {
		return err
	}
	if err := l.SetReadBuffer(sockbuf); err != nil {
		return err
	}
	c, err := wait()
	if err != nil {
		return err
	}
	bins := make([]uint64, c.end.Sub(c.begin)/bin)
	if err := l.SetDeadline(c.end); err != nil {
		return err
	}
	// What goes wrong before the end shows as zeros.
	if s, err := l.AcceptKCP(); err == nil {
		tune(s)
		s.SetReadDeadline(c.end)
		buf := make([]byte, chunk)
		for {
			n, err := s.Read(buf)
			if err != nil {
				break
			}
			if at := int(time.Since(c.begin) / bin); at >= 0 && at < len(bins) {
				bins[at] += uint64(n)
			}
		}
	}
	time.Sleep(time.Until(c.end))
	return json.NewEncoder(os.Stdout).Encode(map[string][]uint64{"bins": bins})
}

func send(addr string) error {
	c, err := wait()
	if err != nil {
		return err
	}
	time.Sleep(time.Until(c.start))
	s, err := kcp.DialWithOptions(addr, nil, 0, 0)
	if err != nil {
		return err
	}
	if err := s.SetWriteBuffer(sockbuf); err != nil {
		return err
	}
	tune(s)
	s.SetWriteDeadline(c.end)
	buf := make([]byte, chunk)
	for time.Now().Before(c.end) {
		if _, err := s.Write(buf); err != nil && time.Now().Before(c.end) {
			return err
		}
	}
	return nil
}
