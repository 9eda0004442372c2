package sandbox

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// sizeUnits maps a lower-case suffix to its factor. Suffixes with an "i" are
// powers of 1024; a bare letter is too, as users of ulimit and Docker expect.
var sizeUnits = map[string]int64{
	"": 1, "b": 1,
	"k": 1 << 10, "kib": 1 << 10, "kb": 1000,
	"m": 1 << 20, "mib": 1 << 20, "mb": 1000 * 1000,
	"g": 1 << 30, "gib": 1 << 30, "gb": 1000 * 1000 * 1000,
	"t": 1 << 40, "tib": 1 << 40, "tb": 1000 * 1000 * 1000 * 1000,
}

// ParseSize reads a size such as "64MiB", "1.5GiB", "10MB" or "4096". The
// result is in bytes. Negative sizes, sizes that overflow and fractions of a
// byte are errors; zero is returned as it is.
func ParseSize(s string) (int64, error) {
	text := strings.TrimSpace(s)
	i := strings.IndexFunc(text, unicode.IsLetter)
	if i < 0 {
		i = len(text)
	}
	num, unit := strings.TrimSpace(text[:i]), strings.ToLower(text[i:])
	factor, ok := sizeUnits[unit]
	if !ok || num == "" {
		return 0, sizeError(s)
	}
	if n, err := strconv.ParseInt(num, 10, 64); err == nil {
		if n < 0 || (n > 0 && n > math.MaxInt64/factor) {
			return 0, sizeError(s)
		}
		return n * factor, nil
	}
	f, err := strconv.ParseFloat(num, 64)
	if err != nil || math.IsNaN(f) || f < 0 || f*float64(factor) >= math.MaxInt64 {
		return 0, sizeError(s)
	}
	if factor == 1 && f != math.Trunc(f) { // "1.5": the unit was forgotten
		return 0, &Error{
			Code: CodeLimitInvalid, Message: fmt.Sprintf("\"%s\" is a fraction of a byte", SafeText(s, 40)),
			Hint: fmt.Sprintf("write %sMiB or %sGiB", SafeText(num, 20), SafeText(num, 20)),
		}
	}
	return int64(f * float64(factor)), nil
}

func sizeError(s string) error {
	return &Error{
		Code: CodeLimitInvalid, Message: fmt.Sprintf("\"%s\" is not a size", SafeText(s, 40)),
		Hint: "write sizes as 64MiB, 1.5GiB, 10MB or a number of bytes",
	}
}

// ParseTime reads a time such as "2s", "500ms" or "1m30s", in milliseconds.
// A bare number is an error: its unit would be a guess. Less than a
// millisecond, but not zero, counts as one.
func ParseTime(s string) (int64, error) {
	d, err := time.ParseDuration(strings.TrimSpace(s))
	if err != nil || d < 0 {
		return 0, &Error{
			Code: CodeLimitInvalid, Message: fmt.Sprintf("\"%s\" is not a time", SafeText(s, 40)),
			Hint: "write times as 2s, 500ms or 1m30s",
		}
	}
	if d > 0 && d < time.Millisecond {
		return 1, nil
	}
	return d.Milliseconds(), nil
}

// FormatSize writes a number of bytes with the largest unit that shows it
// exactly with at most one decimal: 268435456 is "256MiB", and one byte more is
// "268435457B", so that it never looks like the limit that it passed.
func FormatSize(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	for i := len(units) - 1; i > 0; i-- {
		unit := int64(1) << (10 * i)
		if n/unit == 0 || n*10/unit*unit != n*10 {
			continue
		}
		if n%unit == 0 {
			return fmt.Sprintf("%d%s", n/unit, units[i])
		}
		return fmt.Sprintf("%.1f%s", float64(n)/float64(unit), units[i])
	}
	return fmt.Sprintf("%dB", n)
}

// FormatQuantity writes a value in the form that users type: "30s", "256MiB",
// "64".
func FormatQuantity(v int64, u Unit) string {
	switch u {
	case UnitBytes:
		return FormatSize(v)
	case UnitMilliseconds:
		return formatMS(v)
	}
	return strconv.FormatInt(v, 10)
}

func formatMS(v int64) string {
	fits := (time.Duration(v) * time.Millisecond).Milliseconds() == v // in nanoseconds it may not
	if v%1000 != 0 || v == 0 || !fits {
		return fmt.Sprintf("%dms", v)
	}
	s := (time.Duration(v) * time.Millisecond).String()
	s = strings.TrimSuffix(s, "0s")
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	if s == "" || s[len(s)-1] >= '0' && s[len(s)-1] <= '9' {
		return (time.Duration(v) * time.Millisecond).String()
	}
	return s
}

// SafeText makes text from outside fit for our own messages: control
// characters, escape sequences, bidirectional overrides and bytes that are not
// UTF-8 are written as escapes, and at most limit runes are kept.
func SafeText(s string, limit int) string {
	var b strings.Builder
	n := 0
	for len(s) > 0 {
		if n == limit {
			b.WriteString("…")
			break
		}
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
		}
		s = s[size:]
		n++
	}
	return b.String()
}
