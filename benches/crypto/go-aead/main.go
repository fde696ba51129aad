// Go's AEADs and random nonces, for comparison with the benchmark of this folder: the libraries that kcp-go uses,
// packets of 1,400 bytes, one thread.
//
//	GO111MODULE=off GOPATH=/usr/share/gocode go run ./benches/crypto/go-aead
//
// golang.org/x/crypto is Debian's package golang-golang-x-crypto-dev.
package main

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"fmt"
	"time"

	"golang.org/x/crypto/chacha20poly1305"
)

const (
	packetLen = 1400
	rounds    = 40
	perRound  = 2500
)

// fastest returns the time of one call in the fastest round: the one that other processes disturbed least.
func fastest(call func()) time.Duration {
	best := time.Duration(1 << 62)
	for range rounds {
		began := time.Now()
		for range perRound {
			call()
		}
		best = min(best, time.Since(began))
	}
	return best / perRound
}

func rate(d time.Duration) float64 { return packetLen / d.Seconds() / 1e6 }

func measure(name string, aead cipher.AEAD, err error) {
	if err != nil {
		panic(err)
	}
	packet := make([]byte, packetLen)
	nonce := packet[:aead.NonceSize()]
	payload := packet[len(nonce) : packetLen-aead.Overhead()]
	seal := fastest(func() { aead.Seal(payload[:0], nonce, payload, nil) })

	sealed := append([]byte(nil), packet...)
	restore := fastest(func() { copy(packet, sealed) })
	open := fastest(func() {
		copy(packet, sealed)
		if _, err := aead.Open(payload[:0], nonce, packet[len(nonce):], nil); err != nil {
			panic(err)
		}
	})
	fmt.Printf("%-20s seal %5.0f MB/s  open %5.0f MB/s\n", name, rate(seal), rate(open-restore))
}

func gcm(key int) (cipher.AEAD, error) {
	block, err := aes.NewCipher(make([]byte, key))
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

func main() {
	for _, bits := range []int{128, 192, 256} {
		aead, err := gcm(bits / 8)
		measure(fmt.Sprintf("aes-%d-gcm", bits), aead, err)
	}
	aead, err := chacha20poly1305.New(make([]byte, 32))
	measure("chacha20-poly1305", aead, err)
	aead, err = chacha20poly1305.NewX(make([]byte, 32))
	measure("xchacha20-poly1305", aead, err)

	// kcp-go's nonce: AES-128 over a block of 16 bytes, seeded once.
	var seed, nonce [aes.BlockSize]byte
	rand.Read(seed[:])
	block, err := aes.NewCipher(seed[:])
	if err != nil {
		panic(err)
	}
	own := fastest(func() {
		block.Encrypt(seed[:], seed[:])
		copy(nonce[:], seed[:])
	})
	system := fastest(func() { rand.Read(nonce[:]) })
	fmt.Printf("%-20s AES chain %v  crypto/rand %v\n", "nonce of 16 bytes", own, system)
}
