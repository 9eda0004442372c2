package audit

import (
	"errors"
	"io"
	"math/bits"

	"golang.org/x/mod/sumdb/tlog"
)

// edge is the right edge of a tree: what it takes to add an entry and to know the root.
// The hash of the complete subtree of 2^k entries that ends before the others is at[k].
type edge struct {
	size int64
	at   [63]tlog.Hash
}

// add adds an entry by its hash, and returns the hashes that are stored for it.
func (e *edge) add(h tlog.Hash) []tlog.Hash {
	stored := append(make([]tlog.Hash, 0, 2), h)
	level := bits.TrailingZeros64(^uint64(e.size)) //nolint:gosec // not negative
	for k := range level {
		h = tlog.NodeHash(e.at[k], h)
		stored = append(stored, h)
	}
	e.at[level] = h
	e.size++
	return stored
}

// root is the tree's hash.
func (e *edge) root() tlog.Hash {
	if e.size == 0 {
		h, _ := tlog.TreeHash(0, nil) // that of nothing needs no reader
		return h
	}
	var root tlog.Hash
	some := false
	for k := range e.at {
		switch {
		case e.size>>k&1 == 0:
		case !some:
			root, some = e.at[k], true
		default:
			root = tlog.NodeHash(e.at[k], root)
		}
	}
	return root
}

// storedHashes reads the file of hashes.
func storedHashes(f io.ReaderAt) tlog.HashReader {
	return tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		all := make([]tlog.Hash, len(indexes))
		for i, index := range indexes {
			if n, err := f.ReadAt(all[i][:], index*tlog.HashSize); n < tlog.HashSize {
				return nil, errors.Join(errors.New("the tree's hashes are not all there"), err)
			}
		}
		return all, nil
	})
}
