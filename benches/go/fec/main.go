// Klauspost's Reed-Solomon codec, kcp-go's, at the sizes and under the names of ../../fec.rs.
//
// Every figure is the least of several rounds: what the code costs when nothing else runs. Memory for recovered shards
// is at hand, as kcp-go has it.
package main

import (
	"bytes"
	"fmt"
	"log"
	"time"

	"github.com/klauspost/reedsolomon"
)

const (
	data   = 10
	parity = 3
	length = 1400
	rounds = 30
	turns  = 5000
)

func main() {
	code, err := reedsolomon.New(data, parity)
	check(err)
	shards := make([][]byte, data+parity)
	for n := range shards {
		shards[n] = make([]byte, length)
		for at := range shards[n] {
			shards[n][at] = byte(n*7 + at*13)
		}
	}

	measure("encode", func() { check(code.Encode(shards)) })
	measure("encode_one", func() {
		for _, row := range shards[data:] {
			clear(row)
		}
		for n := range data {
			check(code.EncodeIdx(shards[n], n, shards[data:]))
		}
	})
	for _, lost := range []int{1, 3} {
		whole := bytes.Join(shards, nil)
		measure(fmt.Sprintf("reconstruct_%d", lost), func() {
			for n := range lost {
				// Empty, with its memory: the codec writes there.
				shards[2*n] = shards[2*n][:0]
			}
			check(code.ReconstructData(shards))
		})
		if !bytes.Equal(whole, bytes.Join(shards, nil)) {
			log.Fatal("not what was lost")
		}
	}
}

func measure(name string, turn func()) {
	best := time.Duration(1<<63 - 1)
	for range rounds {
		start := time.Now()
		for range turns {
			turn()
		}
		best = min(best, time.Since(start)/turns)
	}
	fmt.Printf("%-16s %6d ns  %5.1f GB/s\n", name, best.Nanoseconds(), data*length/best.Seconds()/1e9)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
