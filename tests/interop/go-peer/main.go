// SPDX-License-Identifier: MIT

// Command go-peer is kcp9's live test peer: kcp-go on the other end of a real
// socket, driven from the command line.
//
//	go-peer serve --addr 127.0.0.1:0 --mode echo|sink
//	go-peer drive --addr HOST:PORT   --mode echo|sink --bytes N --msg N --conns N
//	go-peer self                     --mode echo|sink --bytes N --msg N --conns N
//
// serve prints "listening HOST:PORT" once it is bound; drive and self print one
// JSON line with the figures of the run and exit 1 if any connection failed.
//
// echo: every byte comes back; drive compares SHA-256 sums per connection.
// sink: the stream starts with 8 bytes, the little-endian count of the bytes that
// follow; when all have come the server answers with its own count, 8 bytes.
//
// Debian's package (golang-github-xtaci-kcp-dev, 5.6.1) builds this file with
//
//	GO111MODULE=off GOPATH=/usr/share/gocode go build -o go-peer main.go
//
// For a newer release, use a go.mod and append /v5 to the import path.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	kcp "github.com/xtaci/kcp-go"
)

// kcpVersion may be set with -ldflags "-X main.kcpVersion=5.6.1".
var kcpVersion string

type options struct {
	addr, mode string
	greeting   string
	bytes      int64
	msg, conns int
	seed       uint64

	crypt, key      string
	data, parity    int
	mtu, wnd        int
	nodelay         [4]int
	stream          bool
	ackNoDelay      bool
	sockbuf         int
	onlyPeer        bool
	timeout, idle   time.Duration
	fec, nodelayRaw string
}

func main() {
	if len(os.Args) < 2 {
		usage("no command")
	}
	o := parse(os.Args[1], os.Args[2:])
	switch os.Args[1] {
	case "serve":
		l, err := listen(o)
		if err != nil {
			fail(err)
		}
		fmt.Printf("listening %s\n", l.Addr())
		serveUntilSignal(l, o)
	case "drive":
		os.Exit(drive(o))
	case "self":
		l, err := listen(o)
		if err != nil {
			fail(err)
		}
		go accept(l, o)
		o.addr = l.Addr().String()
		os.Exit(drive(o))
	default:
		usage("unknown command " + os.Args[1])
	}
}

func usage(why string) {
	fmt.Fprintf(os.Stderr, "go-peer: %s\nusage: go-peer serve|drive|self [flags]; go-peer serve -h lists the flags\n", why)
	os.Exit(2)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "go-peer:", err)
	os.Exit(1)
}

func parse(command string, args []string) *options {
	o := new(options)
	f := flag.NewFlagSet("go-peer "+command, flag.ExitOnError)
	f.StringVar(&o.addr, "addr", "127.0.0.1:0", "address to bind (serve, self) or to dial (drive)")
	f.StringVar(&o.mode, "mode", "echo", "echo or sink")
	f.Int64Var(&o.bytes, "bytes", 10e6, "payload bytes in all, shared among the connections")
	f.IntVar(&o.msg, "msg", 65536, "bytes per write")
	f.IntVar(&o.conns, "conns", 1, "connections, all at the same time")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the payload")
	f.StringVar(&o.crypt, "crypt", "null", "null, none, xor, or the cipher's name as kcptun spells it")
	f.StringVar(&o.key, "key", "", "raw key bytes; the cipher takes what it needs from the front")
	f.StringVar(&o.fec, "fec", "0/0", "data/parity shards")
	f.IntVar(&o.mtu, "mtu", 1400, "UDP payload bytes per packet")
	f.IntVar(&o.wnd, "wnd", 1024, "send and receive window, segments")
	f.StringVar(&o.nodelayRaw, "nodelay", "1,10,2,1", "nodelay,interval,resend,nc")
	stream := f.String("stream", "true", "stream mode, true or false")
	ackNoDelay := f.String("ack-nodelay", "false", "acknowledge every packet at once, true or false")
	f.IntVar(&o.sockbuf, "sockbuf", 4<<20, "socket buffer bytes, each direction")
	f.BoolVar(&o.onlyPeer, "only-peer", false, "drive: hear no packet of another source than addr")
	timeout := f.Float64("timeout", 60, "seconds until the whole run counts as failed; 0: never")
	f.StringVar(&o.greeting, "greet", "", "what serve writes first in each session")
	idle := f.Float64("idle", 30, "seconds without input after which serve drops a session; 0: never")
	f.Parse(args)
	o.timeout = time.Duration(*timeout * float64(time.Second))
	o.idle = time.Duration(*idle * float64(time.Second))

	var streamErr, ackErr error
	o.stream, streamErr = strconv.ParseBool(*stream)
	o.ackNoDelay, ackErr = strconv.ParseBool(*ackNoDelay)

	switch {
	case streamErr != nil || ackErr != nil:
		usage("stream and ack-nodelay are true or false")
	case f.NArg() > 0:
		usage("unexpected argument " + f.Arg(0))
	case o.mode != "echo" && o.mode != "sink":
		usage("mode is echo or sink")
	case o.conns < 1 || o.msg < 1 || o.bytes < int64(o.conns):
		usage("conns, msg and bytes per connection must be at least 1")
	case !ints(o.fec, "/", &o.data, &o.parity):
		usage("fec is DATA/PARITY")
	case !ints(o.nodelayRaw, ",", &o.nodelay[0], &o.nodelay[1], &o.nodelay[2], &o.nodelay[3]):
		usage("nodelay is four integers with commas")
	}
	if (o.data == 0) != (o.parity == 0) || o.data < 0 || o.parity < 0 || o.data+o.parity > 256 {
		usage("fec shards out of range")
	}
	if _, err := o.cipher(); err != nil {
		usage(err.Error())
	}
	return o
}

func ints(s, sep string, out ...*int) bool {
	parts := strings.Split(s, sep)
	if len(parts) != len(out) {
		return false
	}
	for i, p := range parts {
		n, err := strconv.Atoi(p)
		if err != nil {
			return false
		}
		*out[i] = n
	}
	return true
}

type cipherSpec struct {
	keyLen int // bytes taken from the front of the key; 0: all of it
	make   func(key []byte) (kcp.BlockCrypt, error)
}

var ciphers = map[string]cipherSpec{
	"aes":      {32, kcp.NewAESBlockCrypt},
	"aes-192":  {24, kcp.NewAESBlockCrypt},
	"aes-128":  {16, kcp.NewAESBlockCrypt},
	"salsa20":  {32, kcp.NewSalsa20BlockCrypt},
	"blowfish": {32, kcp.NewBlowfishBlockCrypt},
	"twofish":  {32, kcp.NewTwofishBlockCrypt},
	"cast5":    {16, kcp.NewCast5BlockCrypt},
	"3des":     {24, kcp.NewTripleDESBlockCrypt},
	"tea":      {16, kcp.NewTEABlockCrypt},
	"xtea":     {16, kcp.NewXTEABlockCrypt},
	"sm4":      {16, kcp.NewSM4BlockCrypt},
	"xor":      {0, kcp.NewSimpleXORBlockCrypt},
	"none":     {0, kcp.NewNoneBlockCrypt},
}

// cipher makes a fresh cipher. Every client session gets its own: kcp-go 5.6.1
// keeps scratch space inside it.
func (o *options) cipher() (kcp.BlockCrypt, error) {
	if o.crypt == "null" {
		return nil, nil
	}
	spec, ok := ciphers[o.crypt]
	if !ok {
		return nil, fmt.Errorf("unknown crypt %q", o.crypt)
	}
	key := []byte(o.key)
	if len(key) < spec.keyLen {
		return nil, fmt.Errorf("%s needs a key of %d bytes, got %d", o.crypt, spec.keyLen, len(key))
	}
	if spec.keyLen > 0 {
		key = key[:spec.keyLen]
	}
	return spec.make(key)
}

// tune applies the session options, the same on both ends.
func (o *options) tune(s *kcp.UDPSession) error {
	s.SetStreamMode(o.stream)
	s.SetNoDelay(o.nodelay[0], o.nodelay[1], o.nodelay[2], o.nodelay[3])
	s.SetWindowSize(o.wnd, o.wnd)
	s.SetACKNoDelay(o.ackNoDelay)
	if !s.SetMtu(o.mtu) {
		return fmt.Errorf("kcp-go refuses mtu %d", o.mtu)
	}
	return nil
}

// ---- server ----

func listen(o *options) (*kcp.Listener, error) {
	block, err := o.cipher()
	if err != nil {
		return nil, err
	}
	l, err := kcp.ListenWithOptions(o.addr, block, o.data, o.parity)
	if err != nil {
		return nil, err
	}
	if err := l.SetReadBuffer(o.sockbuf); err != nil {
		return nil, err
	}
	return l, l.SetWriteBuffer(o.sockbuf)
}

func accept(l *kcp.Listener, o *options) {
	for {
		s, err := l.AcceptKCP()
		if err != nil {
			fail(err)
		}
		if err := o.tune(s); err != nil {
			fail(err)
		}
		go handle(s, o)
	}
}

var served struct{ conns, bytes, failed int64 }

// serveUntilSignal accepts until a signal ends the process, and then reports.
func serveUntilSignal(l *kcp.Listener, o *options) {
	start := time.Now()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	var expired <-chan time.Time
	if o.timeout > 0 {
		expired = time.After(o.timeout)
	}
	go accept(l, o)
	code := 0
	select {
	case <-stop:
	case <-expired:
		fmt.Fprintln(os.Stderr, "go-peer: serve timed out")
		code = 1
	}
	o.conns = int(atomic.LoadInt64(&served.conns))
	report(o, atomic.LoadInt64(&served.bytes), time.Since(start), int(atomic.LoadInt64(&served.failed)))
	os.Exit(code)
}

func handle(s *kcp.UDPSession, o *options) {
	atomic.AddInt64(&served.conns, 1)
	defer s.Close()
	in := &counted{r: s}
	if o.idle > 0 {
		done := make(chan struct{})
		defer close(done)
		go closeWhenIdle(s, in, o.idle, done)
	}
	var err error
	if o.greeting != "" {
		_, err = s.Write([]byte(o.greeting))
	}
	if err != nil {
		// Said below.
	} else if o.mode == "echo" {
		err = serveEcho(s, in)
	} else {
		err = serveSink(s, in)
	}
	if err != nil {
		atomic.AddInt64(&served.failed, 1)
		fmt.Fprintf(os.Stderr, "go-peer: session %s: %v\n", s.RemoteAddr(), err)
	}
}

func serveEcho(s io.Writer, in *counted) error {
	buf := make([]byte, 64<<10)
	for {
		n, err := in.Read(buf)
		if err != nil {
			return nil // idle: KCP has no end of stream
		}
		if _, err := s.Write(buf[:n]); err != nil {
			return err
		}
	}
}

func serveSink(s io.Writer, in *counted) error {
	var word [8]byte
	if _, err := io.ReadFull(in, word[:]); err != nil {
		return err
	}
	want := binary.LittleEndian.Uint64(word[:])
	buf := make([]byte, 64<<10)
	got := uint64(0)
	for got < want {
		n, err := in.Read(buf)
		if err != nil {
			return fmt.Errorf("after %d of %d bytes: %v", got, want, err)
		}
		got += uint64(n)
	}
	binary.LittleEndian.PutUint64(word[:], got)
	if _, err := s.Write(word[:]); err != nil {
		return err
	}
	// Stay until idle, so that a lost answer is sent again.
	for {
		n, err := in.Read(buf)
		if err != nil {
			return nil
		}
		if n > 0 {
			return fmt.Errorf("%d bytes more than announced", n)
		}
	}
}

// counted lets another goroutine see that a session still receives.
type counted struct {
	r io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	atomic.AddInt64(&c.n, int64(n))
	atomic.AddInt64(&served.bytes, int64(n))
	return n, err
}

func closeWhenIdle(s io.Closer, in *counted, idle time.Duration, done <-chan struct{}) {
	tick := time.NewTicker(idle)
	defer tick.Stop()
	last := int64(-1)
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			now := atomic.LoadInt64(&in.n)
			if now == last {
				s.Close()
				return
			}
			last = now
		}
	}
}

// ---- client ----

func drive(o *options) int {
	start := time.Now()
	var finished, moved int64
	results := make(chan error, o.conns)
	for i := 0; i < o.conns; i++ {
		n := o.bytes / int64(o.conns)
		if int64(i) < o.bytes%int64(o.conns) {
			n++
		}
		go func(i int, n int64) {
			err := runConn(o, i, n, &moved)
			if err != nil {
				err = fmt.Errorf("connection %d: %v", i, err)
			}
			results <- err
		}(i, n)
	}
	var expired <-chan time.Time
	if o.timeout > 0 {
		expired = time.After(o.timeout)
	}
	failed := 0
	for finished < int64(o.conns) {
		select {
		case err := <-results:
			finished++
			if err != nil {
				failed++
				fmt.Fprintln(os.Stderr, "go-peer:", err)
			}
		case <-expired:
			fmt.Fprintln(os.Stderr, "go-peer: timed out")
			failed += o.conns - int(finished)
			finished = int64(o.conns)
		}
	}
	report(o, atomic.LoadInt64(&moved), time.Since(start), failed)
	if failed > 0 {
		return 1
	}
	return 0
}

// onlyPeer is a socket that hears its peer only.
//
// A session of kcp-go 5.6.1 that was dialed takes the source of the first packet
// that comes for its peer, and is deaf to the true one if that was a stranger. A
// port that the system hands out may have been another client's a moment ago, and
// who spoke with that one still resends.
type onlyPeer struct {
	*net.UDPConn
	peer string
}

func (c onlyPeer) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		n, from, err := c.UDPConn.ReadFrom(b)
		if err != nil || from.String() == c.peer {
			return n, from, err
		}
	}
}

func (o *options) dial(block kcp.BlockCrypt) (*kcp.UDPSession, error) {
	if !o.onlyPeer {
		return kcp.DialWithOptions(o.addr, block, o.data, o.parity)
	}
	peer, err := net.ResolveUDPAddr("udp4", o.addr)
	if err != nil {
		return nil, err
	}
	// It is closed with the process: kcp-go does not close what it was given.
	conn, err := net.ListenUDP("udp4", nil)
	if err != nil {
		return nil, err
	}
	return kcp.NewConn(o.addr, block, o.data, o.parity, onlyPeer{conn, peer.String()})
}

// runConn moves n bytes over one connection; moved counts what was verified.
func runConn(o *options, index int, n int64, moved *int64) error {
	block, err := o.cipher()
	if err != nil {
		return err
	}
	s, err := o.dial(block)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.SetReadBuffer(o.sockbuf); err != nil {
		return err
	}
	if err := s.SetWriteBuffer(o.sockbuf); err != nil {
		return err
	}
	if err := o.tune(s); err != nil {
		return err
	}
	payload := &payload{state: o.seed<<20 + uint64(index), left: n}
	if o.mode == "echo" {
		err = driveEcho(s, payload, n, o.msg)
	} else {
		err = driveSink(s, payload, n, o.msg)
	}
	if err == nil {
		atomic.AddInt64(moved, n)
	}
	return err
}

func driveEcho(s io.ReadWriter, p *payload, n int64, msg int) error {
	sent := sha256.New()
	written := make(chan error, 1)
	go func() { written <- writeAll(io.MultiWriter(sent, s), p, msg) }()

	// The reader may fail first and the writer then hang: the first error wins.
	read := make(chan error, 1)
	back := sha256.New()
	go func() {
		buf := make([]byte, 64<<10)
		for left := n; left > 0; {
			k, err := s.Read(buf)
			if err != nil {
				read <- fmt.Errorf("%d bytes short: %v", left, err)
				return
			}
			if int64(k) > left {
				read <- errors.New("more bytes came back than were sent")
				return
			}
			back.Write(buf[:k])
			left -= int64(k)
		}
		read <- nil
	}()
	for i := 0; i < 2; i++ {
		select {
		case err := <-written:
			if err != nil {
				return err
			}
		case err := <-read:
			if err != nil {
				return err
			}
		}
	}
	if !bytes.Equal(sent.Sum(nil), back.Sum(nil)) {
		return errors.New("SHA-256 of the echo differs")
	}
	return nil
}

func driveSink(s io.ReadWriter, p *payload, n int64, msg int) error {
	var word [8]byte
	binary.LittleEndian.PutUint64(word[:], uint64(n))
	if _, err := s.Write(word[:]); err != nil {
		return err
	}
	if err := writeAll(s, p, msg); err != nil {
		return err
	}
	if _, err := io.ReadFull(s, word[:]); err != nil {
		return fmt.Errorf("no answer: %v", err)
	}
	if got := binary.LittleEndian.Uint64(word[:]); got != uint64(n) {
		return fmt.Errorf("the sink counted %d bytes, not %d", got, n)
	}
	return nil
}

func writeAll(w io.Writer, p *payload, msg int) error {
	buf := make([]byte, msg)
	for {
		k := p.fill(buf)
		if k == 0 {
			return nil
		}
		if _, err := w.Write(buf[:k]); err != nil {
			return err
		}
	}
}

// payload is a seeded stream of splitmix64 words.
type payload struct {
	state uint64
	left  int64
}

func (p *payload) fill(buf []byte) int {
	n := len(buf)
	if int64(n) > p.left {
		n = int(p.left)
	}
	p.left -= int64(n)
	out := buf[:n]
	for len(out) >= 8 {
		binary.LittleEndian.PutUint64(out, p.next())
		out = out[8:]
	}
	if len(out) > 0 {
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], p.next())
		copy(out, word[:])
	}
	return n
}

func (p *payload) next() uint64 {
	p.state += 0x9e3779b97f4a7c15
	z := p.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// ---- report ----

func report(o *options, n int64, elapsed time.Duration, failed int) {
	var ru syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &ru)
	cpu := time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
	line, _ := json.Marshal(struct {
		Peer   string  `json:"peer"`
		Mode   string  `json:"mode"`
		Crypt  string  `json:"crypt"`
		FEC    string  `json:"fec"`
		Conns  int     `json:"conns"`
		Bytes  int64   `json:"bytes"`
		Secs   float64 `json:"secs"`
		MBps   float64 `json:"MBps"`
		CPU    float64 `json:"cpu_s"`
		MaxRSS int64   `json:"maxrss_kb"`
		Failed int     `json:"failed"`
		// Data packets that came back from parity.
		Recovered uint64 `json:"fec_recovered"`
		// Packets with a segment that kcp-go does not know, and segments sent again.
		Refused uint64 `json:"refused"`
		Resent  uint64 `json:"resent"`
	}{
		"kcp-go " + version(), o.mode, o.crypt, fmt.Sprintf("%d/%d", o.data, o.parity), o.conns, n,
		round(elapsed.Seconds()), round(float64(n) / 1e6 / elapsed.Seconds()), round(cpu.Seconds()),
		int64(ru.Maxrss), failed, atomic.LoadUint64(&kcp.DefaultSnmp.FECRecovered),
		atomic.LoadUint64(&kcp.DefaultSnmp.KCPInErrors), atomic.LoadUint64(&kcp.DefaultSnmp.RetransSegs),
	})
	fmt.Println(string(line))
}

func round(x float64) float64 { return math.Round(x*1000) / 1000 }

func version() string {
	if kcpVersion != "" {
		return kcpVersion
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if strings.HasPrefix(dep.Path, "github.com/xtaci/kcp-go") {
				return strings.TrimPrefix(dep.Version, "v")
			}
		}
	}
	return "unknown"
}
