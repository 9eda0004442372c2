package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"unicode"
	"unicode/utf8"
)

// isTerminal asks the terminal driver for its settings without giving it a
// place to put them: a terminal answers EFAULT, everything else ENOTTY.
func isTerminal(f *os.File) bool {
	conn, err := f.SyscallConn()
	if err != nil {
		return false
	}
	var errno syscall.Errno
	err = conn.Control(func(fd uintptr) {
		_, _, errno = syscall.Syscall(syscall.SYS_IOCTL, fd, getTerminal, 0)
	})
	return err == nil && errors.Is(errno, syscall.EFAULT)
}

// visible is a writer for terminals. It passes text on and writes as escapes
// what a terminal would obey: control characters but newline and tab, escape
// sequences, bidirectional overrides, bytes that are not UTF-8. A carriage
// return stays where a newline follows it.
type visible struct {
	w       io.Writer
	pending []byte // the start of a character whose rest has not come yet
}

// Write implements io.Writer.
func (v *visible) Write(p []byte) (int, error) {
	text := slices.Concat(v.pending, p)
	out := make([]byte, 0, len(text)+len(text)/8)
	for len(text) > 0 && !incomplete(text) {
		r, size := utf8.DecodeRune(text)
		out = appendVisible(out, r, text[:size], len(text) > 1 && text[1] == '\n')
		text = text[size:]
	}
	v.pending = append([]byte(nil), text...)
	if _, err := v.w.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close writes what was held back. It does not close the writer below.
func (v *visible) Close() error {
	var out []byte
	for _, b := range v.pending {
		out = fmt.Appendf(out, `\x%02x`, b)
	}
	v.pending = nil
	_, err := v.w.Write(out)
	return err
}

// incomplete says that what text starts with needs another byte to be judged.
func incomplete(text []byte) bool {
	return !utf8.FullRune(text) || (len(text) == 1 && text[0] == '\r')
}

func appendVisible(out []byte, r rune, raw []byte, newlineNext bool) []byte {
	switch {
	case r == '\n' || r == '\t' || (r == '\r' && newlineNext):
		return append(out, raw...)
	case r == utf8.RuneError && len(raw) == 1:
		return fmt.Appendf(out, `\x%02x`, raw[0])
	case r < 0x20 || r == 0x7f:
		return fmt.Appendf(out, `\x%02x`, r)
	case unicode.Is(unicode.Cc, r) || unicode.Is(unicode.Bidi_Control, r):
		return fmt.Appendf(out, `\u%04x`, r)
	}
	return append(out, raw...)
}
