package replay

import (
	"bytes"
	"fmt"
	"strings"

	"pinfold/sandbox"
)

// Bounds on the work that a diff is. Texts that differ in more are shown as one that took
// the place of the other.
const (
	window     = 64 << 10 // bytes of each text, from shortly before the first difference
	maxLines   = 20_000
	maxEdits   = 400
	around     = 3
	maxColumns = 200 // runes of a line
)

// op is a line of a diff: kept (' '), removed ('-') or added ('+').
type op struct {
	kind byte
	line []byte
	a, b int // lines of each text before it
}

// diff is a unified diff of two texts, bounded, fit for a terminal.
func diff(was, is []byte) string {
	start := common(was, is)
	for range around + 1 {
		start = bytes.LastIndexByte(was[:start], '\n') + 1
		if start == 0 {
			break
		}
		start--
	}
	if start > 0 {
		start++
	}
	before := bytes.Count(was[:start], []byte{'\n'})
	was, wasCut := seen(was[start:])
	is, isCut := seen(is[start:])
	out := unified(edits(lines(was), lines(is), before))
	if wasCut || isCut {
		out += "… what follows was not compared\n"
	}
	return out
}

// seen is what is compared of a text, whole lines where there are some.
func seen(text []byte) (some []byte, isCut bool) {
	if len(text) <= window {
		return text, false
	}
	if end := bytes.LastIndexByte(text[:window], '\n'); end >= 0 {
		return text[:end+1], true
	}
	return text[:window], true
}

// lines takes a text apart behind its line feeds.
func lines(text []byte) [][]byte {
	if len(text) == 0 {
		return nil
	}
	all := bytes.SplitAfter(text, []byte{'\n'})
	if n := len(all); len(all[n-1]) == 0 {
		all = all[:n-1]
	}
	return all
}

// edits turns a into b by few removals and additions (Myers, An O(ND) Difference Algorithm).
// Both stand behind so many lines.
func edits(a, b [][]byte, before int) []op {
	if len(a) > maxLines || len(b) > maxLines {
		return replaced(a, b, before)
	}
	x, y := numbered(a, b)
	most := min(len(x)+len(y), maxEdits)
	reach := make([]int, 2*most+3) // how far into x each diagonal has come
	var steps [][]int
	for d := 0; d <= most; d++ {
		steps = append(steps, append([]int(nil), reach[most+1-d:most+2+d]...))
		for k := -d; k <= d; k += 2 {
			at := reach[most+1+k-1] + 1
			if k == -d || k != d && reach[most+1+k-1] < reach[most+1+k+1] {
				at = reach[most+1+k+1]
			}
			for at < len(x) && at-k < len(y) && x[at] == y[at-k] {
				at++
			}
			reach[most+1+k] = at
			if at >= len(x) && at-k >= len(y) {
				return path(a, b, steps, before)
			}
		}
	}
	return replaced(a, b, before)
}

// numbered gives equal lines equal numbers.
func numbered(a, b [][]byte) (x, y []int) {
	numbers := map[string]int{}
	number := func(all [][]byte) []int {
		out := make([]int, len(all))
		for i, line := range all {
			n, known := numbers[string(line)]
			if !known {
				n = len(numbers)
				numbers[string(line)] = n
			}
			out[i] = n
		}
		return out
	}
	return number(a), number(b)
}

// path walks back from the end by what each step had reached before it.
func path(a, b [][]byte, steps [][]int, before int) []op {
	var back []op
	x, y := len(a), len(b)
	for d := len(steps) - 1; d >= 0; d-- {
		reach := func(k int) int { // before step d the diagonals from -d to d are known
			if k < -d || k > d {
				return -1
			}
			return steps[d][k+d]
		}
		k := x - y
		from := k - 1
		if k == -d || k != d && reach(k-1) < reach(k+1) {
			from = k + 1
		}
		fromX, fromY := reach(from), reach(from)-from
		if d == 0 {
			fromX, fromY = 0, 0
		}
		for x > fromX && y > fromY {
			x, y = x-1, y-1
			back = append(back, op{' ', a[x], before + x, before + y})
		}
		switch {
		case d == 0:
		case from == k-1:
			x--
			back = append(back, op{'-', a[x], before + x, before + y})
		default:
			y--
			back = append(back, op{'+', b[y], before + x, before + y})
		}
	}
	ops := make([]op, 0, len(back))
	for i := len(back) - 1; i >= 0; i-- {
		ops = append(ops, back[i])
	}
	return ops
}

// replaced is b in the place of a.
func replaced(a, b [][]byte, before int) []op {
	ops := make([]op, 0, len(a)+len(b))
	for i, line := range a {
		ops = append(ops, op{'-', line, before + i, before})
	}
	for i, line := range b {
		ops = append(ops, op{'+', line, before + len(a), before + i})
	}
	return ops
}

// unified prints what changed with what stands around it.
func unified(ops []op) string {
	var out strings.Builder
	for at := 0; at < len(ops); {
		if ops[at].kind == ' ' {
			at++
			continue
		}
		from, to, quiet := max(0, at-around), at, 0
		for ; to < len(ops) && quiet <= 2*around; to++ {
			quiet++
			if ops[to].kind != ' ' {
				quiet = 0
			}
		}
		to -= max(0, quiet-around)
		if !hunk(&out, ops[from:to]) {
			break
		}
		at = to
	}
	return out.String()
}

// hunk says whether there was room for all of it.
func hunk(out *strings.Builder, ops []op) bool {
	var removed, added int
	for _, o := range ops {
		if o.kind != '+' {
			removed++
		}
		if o.kind != '-' {
			added++
		}
	}
	text := fmt.Sprintf("@@ -%s +%s @@\n", span(ops[0].a, removed), span(ops[0].b, added))
	for i, o := range ops {
		if out.Len()+len(text) > sandbox.MaxDiffBytes-100 {
			fmt.Fprintf(out, "… %d lines more are left out\n", len(ops)-i)
			return false
		}
		out.WriteString(text)
		line, whole := bytes.CutSuffix(o.line, []byte{'\n'})
		text = string(o.kind) + sandbox.SafeText(string(line[:min(len(line), 8*maxColumns)]), maxColumns) + "\n"
		if !whole {
			text += "\\ No newline at end of file\n"
		}
	}
	if out.Len()+len(text) > sandbox.MaxDiffBytes-100 {
		out.WriteString("… 1 line more is left out\n")
		return false
	}
	out.WriteString(text)
	return true
}

// span is where lines of a hunk stand; of none, after which line.
func span(before, n int) string {
	if n == 0 {
		return fmt.Sprintf("%d,0", before)
	}
	return fmt.Sprintf("%d,%d", before+1, n)
}
