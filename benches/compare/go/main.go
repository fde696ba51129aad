// SPDX-License-Identifier: MIT

// Command go-peer is kcp-go on both ends of the comparison. It has the commands
// and prints the lines of the Rust peers (src/peer):
//
//	go-peer serve --work sink|echo|ping --crypt plain|aes-128-gcm|salsa20-fec
//	go-peer drive --addr HOST:PORT ... --conns N --bytes N --msg N --secs N
//	go-peer version
//
// Debian's package (golang-github-xtaci-kcp-dev) and the module kcp-go/v5 both
// build it, the latter with -tags v5.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

type options struct {
	work, crypt, addr string
	conns, msg        int
	bytes             uint64
	secs              float64
}

func main() {
	if len(os.Args) < 2 {
		fail(fmt.Errorf("usage: go-peer serve|drive|version [flags]"))
	}
	switch os.Args[1] {
	case "serve":
		serveUntilTold(parse(os.Args[2:]))
	case "drive":
		drive(parse(os.Args[2:]))
	case "version":
		fmt.Println(version())
	default:
		fail(fmt.Errorf("unknown command %s", os.Args[1]))
	}
}

func parse(args []string) *options {
	o := new(options)
	f := flag.NewFlagSet("go-peer", flag.ExitOnError)
	f.StringVar(&o.work, "work", "echo", "sink, echo or ping")
	f.StringVar(&o.crypt, "crypt", "plain", "plain, aes-128-gcm or salsa20-fec")
	f.StringVar(&o.addr, "addr", "", "where the server listens")
	f.IntVar(&o.conns, "conns", 1, "connections, all at the same time")
	f.IntVar(&o.msg, "msg", 65536, "bytes per write")
	f.Uint64Var(&o.bytes, "bytes", 0, "payload bytes of a connection")
	f.Float64Var(&o.secs, "secs", 1, "how long pings go on")
	f.Parse(args)
	return o
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "go-peer:", err)
	os.Exit(1)
}

// serveUntilTold serves until standard input ends, and then reports.
func serveUntilTold(o *options) {
	l, err := bind(o)
	if err != nil {
		fail(err)
	}
	fmt.Printf("listening %s\n", l.Addr())
	go accept(l, o)
	io.Copy(io.Discard, os.Stdin)
	report(figures{Bytes: atomic.LoadUint64(&served)})
}

// drive runs all connections: greets on each, and when all are there does the work.
func drive(o *options) {
	ready := make(chan error, o.conns)
	done := make(chan result, o.conns)
	begin := make(chan struct{})
	for i := 0; i < o.conns; i++ {
		go func(i int) {
			s, err := connect(o)
			ready <- err
			if err != nil {
				return
			}
			<-begin
			done <- run(o, s, i)
		}(i)
	}
	for i := 0; i < o.conns; i++ {
		if err := <-ready; err != nil {
			fail(err)
		}
	}
	fmt.Println("started")
	start := time.Now()
	close(begin)
	var total figures
	var trips []time.Duration
	for i := 0; i < o.conns; i++ {
		r := <-done
		if r.err != nil {
			fail(r.err)
		}
		total.Bytes += r.bytes
		trips = append(trips, r.trips...)
	}
	total.Secs = time.Since(start).Seconds()
	if o.work == "ping" {
		total.Trips = make([]uint64, len(trips))
		for i, t := range trips {
			total.Trips[i] = uint64(t.Nanoseconds())
		}
	}
	report(total)
}

// figures is the line that the comparison reads.
type figures struct {
	Bytes uint64  `json:"bytes"`
	Secs  float64 `json:"secs"`
	CPU   float64 `json:"cpu_s"`
	Peak  uint64  `json:"peak_kb"`
	// Round trips, nanoseconds.
	Trips []uint64 `json:"trips_ns"`
}

func report(f figures) {
	var ru syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &ru)
	f.CPU = time.Duration(ru.Utime.Nano() + ru.Stime.Nano()).Seconds()
	f.Peak = peak(uint64(ru.Maxrss))
	if f.Trips == nil {
		f.Trips = []uint64{}
	}
	json.NewEncoder(os.Stdout).Encode(f)
}

// peak is the largest resident size in KiB. The kernel's own figure is preferred
// to that of getrusage, which begins with that of the process that forked.
func peak(otherwise uint64) uint64 {
	status, err := os.Open("/proc/self/status")
	if err != nil {
		return otherwise
	}
	defer status.Close()
	lines := bufio.NewScanner(status)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) > 1 && fields[0] == "VmHWM:" {
			if kb, err := strconv.ParseUint(fields[1], 10, 64); err == nil {
				return kb
			}
		}
	}
	return otherwise
}

// version is that of kcp-go, if the build knows it, and of Go.
func version() string {
	kcp := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if strings.HasPrefix(dep.Path, "github.com/xtaci/kcp-go") {
				kcp = strings.TrimPrefix(dep.Version, "v")
			}
		}
	}
	return kcp + " " + strings.TrimPrefix(runtime.Version(), "go")
}
