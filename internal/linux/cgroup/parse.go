package cgroup

import (
	"bytes"
	"math"
)

// The parsers read what the kernel prints. They take any bytes, allocate
// nothing and never fail loudly: what is not there or not a number is not ok.

// number reads the decimal number at the start of b. One that does not fit is
// the largest that does.
func number(b []byte) (n int64, ok bool) {
	for _, c := range b {
		if c < '0' || c > '9' {
			break
		}
		d := int64(c - '0')
		if n > (math.MaxInt64-d)/10 {
			return math.MaxInt64, true
		}
		n, ok = n*10+d, true
	}
	return n, ok
}

// keyed finds "key 123" among lines of that form. An empty key means that the
// file holds one bare number.
func keyed(b []byte, key string) (int64, bool) {
	if key == "" {
		return number(b)
	}
	for len(b) > 0 {
		line := b
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			line, b = b[:i], b[i+1:]
		} else {
			b = nil
		}
		if len(line) > len(key) && line[len(key)] == ' ' && string(line[:len(key)]) == key {
			return number(line[len(key)+1:])
		}
	}
	return 0, false
}

// ioBytes adds up the bytes of all devices. Version 2 prints one line for each
// device, "8:0 rbytes=1 wbytes=2 …"; version 1 one for each device and
// operation, "8:0 Read 1".
func ioBytes(b []byte, read, write string) (r, w int64) {
	add := func(sum *int64, line []byte, key string) {
		i := bytes.Index(line, []byte(key))
		if i < 0 {
			return
		}
		n, _ := number(line[i+len(key):])
		if n > math.MaxInt64-*sum {
			n = math.MaxInt64 - *sum
		}
		*sum += n
	}
	for len(b) > 0 {
		line, rest, _ := bytes.Cut(b, []byte{'\n'})
		add(&r, line, read)
		add(&w, line, write)
		b = rest
	}
	return r, w
}

// pids reads one process id per line. Ids that do not fit are skipped; 0
// stands for a process outside our pid namespace.
func pids(b []byte) []int {
	var ids []int
	for line := range bytes.Lines(b) {
		if n, ok := number(line); ok && n <= math.MaxInt32 {
			ids = append(ids, int(n))
		}
	}
	return ids
}
