#!/usr/bin/env bash
# This crate's packet ciphers beside kcp-go's: MB/s of 1,400-byte packets on one thread, CRC-32 or tag included. AEADs have
# a line for each provider. Rounds of this crate and of Go alternate, so that a slow minute of the machine affects both. The
# table shows medians, and the ratio of this crate to kcp-go. kcp-go seals and opens one packet at a time: the ratios of
# `batch` compare with that.
#
#   benches/crypto/compare.sh [ROUNDS]      3 rounds by default
#
# kcp-go is Debian's package golang-github-xtaci-kcp-dev. GO_CIPHERS names another build of go/main.go to run instead, GO_AEADS
# one of go-aead/main.go.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
rounds=${1:-3}
gopath=/usr/share/gocode
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

theirs=${GO_CIPHERS:-} aeads=${GO_AEADS:-}
if [ -z "$theirs" ]; then
  if ! command -v go >/dev/null; then
    echo "kcp-go is left out: there is no Go." >&2
  elif ! [ -d "$gopath/src/github.com/xtaci/kcp-go" ]; then
    echo "kcp-go is left out: its package golang-github-xtaci-kcp-dev is not installed." >&2
  else
    theirs=$scratch/go-ciphers
    GO111MODULE=off GOPATH=$gopath go build -o "$theirs" benches/crypto/go/main.go
    aeads=$scratch/go-aeads
    GO111MODULE=off GOPATH=$gopath go build -o "$aeads" benches/crypto/go-aead/main.go
  fi
fi

cargo bench --bench crypto --no-run
for ((round = 0; round < rounds; round++)); do
  cargo bench --quiet --bench crypto -- --table | sed 's/^/ours /'
  if [ -n "$theirs" ]; then "$theirs" | sed 's/^/theirs /'; fi
  if [ -n "$aeads" ]; then "$aeads" | awk '$4 == "MB/s" { print "theirs", $1, $3, $6 }'; fi
done | tee "$scratch/rounds" >/dev/null

awk '
  function median(list,    n, i, j, values, swap) {
    n = split(list, values, " ")
    for (i = 2; i <= n; i++)
      for (j = i; j > 1 && values[j - 1] + 0 > values[j] + 0; j--) {
        swap = values[j]; values[j] = values[j - 1]; values[j - 1] = swap
      }
    return n % 2 ? values[(n + 1) / 2] : (values[n / 2] + values[n / 2 + 1]) / 2
  }
  { if ($1 == "ours" && !($2 in seen)) { seen[$2] = 1; names[++count] = $2 }
    for (i = 3; i <= NF; i++) all[$1, $2, i] = all[$1, $2, i] " " $i }
  END {
    printf "%-30s %8s %8s %8s %8s | %8s %8s | %6s %6s %6s %6s\n", "MB/s", "seal", "batch", "open", "batch",
      "Go seal", "Go open", "seal", "batch", "open", "batch"
    for (c = 1; c <= count; c++) {
      name = names[c]
      seal = median(all["ours", name, 3]); open = median(all["ours", name, 4])
      seal_batch = median(all["ours", name, 5]); open_batch = median(all["ours", name, 6])
      printf "%-30s %8.0f %8.0f %8.0f %8.0f |", name, seal, seal_batch, open, open_batch
      go = name
      sub("/.*", "", go) # without the provider
      if (("theirs", go, 3) in all) {
        go_seal = median(all["theirs", go, 3]); go_open = median(all["theirs", go, 4])
        printf " %8.0f %8.0f | %5.2fx %5.2fx %5.2fx %5.2fx\n", go_seal, go_open, seal / go_seal,
          seal_batch / go_seal, open / go_open, open_batch / go_open
      } else printf " %8s %8s |\n", "-", "-"
    }
  }' "$scratch/rounds"
