// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"
)

// readSize is how many bytes a read may take, as with the Rust peers.
const readSize = 256 << 10

// served counts the bytes that the server has received.
var served uint64

func accept(l *listener, o *options) {
	for {
		s, err := l.AcceptKCP()
		if err != nil {
			fail(err)
		}
		tune(s)
		go func() {
			if err := serve(s, o); err != nil {
				fmt.Fprintln(os.Stderr, "go-peer:", err)
			}
		}()
	}
}

func serve(s *session, o *options) error {
	var hello [1]byte
	if _, err := io.ReadFull(s, hello[:]); err != nil {
		return err
	}
	if _, err := s.Write(hello[:]); err != nil {
		return err
	}
	if o.work == "sink" {
		return serveSink(s)
	}
	buf := make([]byte, readSize)
	for {
		n, err := s.Read(buf)
		if err != nil {
			return err
		}
		atomic.AddUint64(&served, uint64(n))
		if _, err := s.Write(buf[:n]); err != nil {
			return err
		}
	}
}

// serveSink counts what comes, answers with the count, and stays.
func serveSink(s *session) error {
	var word [8]byte
	if _, err := io.ReadFull(s, word[:]); err != nil {
		return err
	}
	want, got := binary.LittleEndian.Uint64(word[:]), uint64(0)
	buf := make([]byte, readSize)
	for got < want {
		n, err := s.Read(buf)
		if err != nil {
			return err
		}
		got += uint64(n)
		atomic.AddUint64(&served, uint64(n))
	}
	binary.LittleEndian.PutUint64(word[:], got)
	if _, err := s.Write(word[:]); err != nil {
		return err
	}
	if n, err := s.Read(buf); err == nil {
		return fmt.Errorf("%d bytes more than announced", n)
	}
	return nil
}

type result struct {
	bytes uint64
	trips []time.Duration
	err   error
}

func run(o *options, s *session, index int) result {
	switch o.work {
	case "sink":
		return result{bytes: o.bytes, err: sink(o, s, index)}
	case "echo":
		return result{bytes: o.bytes, err: echo(o, s, index)}
	default:
		trips, err := ping(o, s, index)
		return result{bytes: uint64(len(trips) * o.msg), trips: trips, err: err}
	}
}

func sink(o *options, s *session, index int) error {
	var word [8]byte
	binary.LittleEndian.PutUint64(word[:], o.bytes)
	if _, err := s.Write(word[:]); err != nil {
		return err
	}
	if err := writeAll(o, s, index); err != nil {
		return err
	}
	if _, err := io.ReadFull(s, word[:]); err != nil {
		return err
	}
	if got := binary.LittleEndian.Uint64(word[:]); got != o.bytes {
		return fmt.Errorf("the sink counted %d bytes, not %d", got, o.bytes)
	}
	return nil
}

func echo(o *options, s *session, index int) error {
	ends := make(chan error, 2)
	go func() { ends <- writeAll(o, s, index) }()
	go func() {
		expected := newPayload(index)
		buf := make([]byte, readSize)
		for left := o.bytes; left > 0; {
			n, err := s.Read(buf)
			switch {
			case err != nil:
				ends <- err
				return
			case uint64(n) > left || !expected.check(buf[:n]):
				ends <- errors.New("the echo differs from what was sent")
				return
			}
			left -= uint64(n)
		}
		ends <- nil
	}()
	for i := 0; i < 2; i++ {
		if err := <-ends; err != nil {
			return err
		}
	}
	return nil
}

func writeAll(o *options, s *session, index int) error {
	p := newPayload(index)
	buf := make([]byte, o.msg)
	for left := o.bytes; left > 0; {
		if uint64(len(buf)) > left {
			buf = buf[:left]
		}
		p.fill(buf)
		if _, err := s.Write(buf); err != nil {
			return err
		}
		left -= uint64(len(buf))
	}
	return nil
}

// ping sends a message and waits for it to come back, again and again.
func ping(o *options, s *session, index int) ([]time.Duration, error) {
	p := newPayload(index)
	out, in := make([]byte, o.msg), make([]byte, o.msg)
	var trips []time.Duration
	limit := time.Duration(o.secs * float64(time.Second))
	for start := time.Now(); time.Since(start) < limit; {
		p.fill(out)
		sent := time.Now()
		if _, err := s.Write(out); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(s, in); err != nil {
			return nil, err
		}
		trips = append(trips, time.Since(sent))
		if !bytes.Equal(in, out) {
			return nil, errors.New("the pong differs from the ping")
		}
	}
	return trips, nil
}
