package bench

import (
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"strings"
	"unicode"
)

// Chart is a picture of some numbers: bars, or lines over a growing number.
type Chart struct {
	File   string // its name: "latency-print.svg"
	Title  string
	Unit   Unit
	XTitle string // of lines
	Bars   []Bar
	Lines  []Series
}

// Bar is one horizontal bar.
type Bar struct {
	Label string
	Value float64
	Ours  bool
}

// Series is one line. X grows.
type Series struct {
	Name string
	X, Y []float64
}

// AddBar adds a bar, for a value that was measured.
func (c *Chart) AddBar(label string, v float64, ours bool) {
	if known(v) {
		c.Bars = append(c.Bars, Bar{label, v, ours})
	}
}

// WriteCharts writes every chart of the report into a directory, which is made.
func (r *Report) WriteCharts(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // documents
		return err
	}
	for _, s := range r.Sections {
		for _, c := range s.Charts {
			if len(c.Bars) == 0 && len(c.Lines) == 0 {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, c.File), []byte(c.SVG()), 0o644); err != nil { //nolint:gosec // a document
				return err
			}
		}
	}
	return nil
}

// Measures of the pictures, in pixels.
const (
	svgWidth   = 760
	svgMargin  = 16
	svgTop     = 52
	barHeight  = 20
	barStep    = 30
	labelWidth = 170
	valueWidth = 96
	plotHeight = 240
	plotLeft   = 64
	plotRight  = 150
)

// svgStyle works on light and on dark pages: a viewer that knows no dark mode
// shows the first.
const svgStyle = `<style>
text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;font-size:13px;fill:#24292f}
.title{font-size:15px;font-weight:600}.small{font-size:11px;fill:#57606a}
.page{fill:#fff}.bar{fill:#8c959f}.ours{fill:#1f6feb}.grid{stroke:#d0d7de;stroke-width:1}
.line{fill:none;stroke-width:2}.c0{stroke:#1f6feb;fill:#1f6feb}.c1{stroke:#bf5b04;fill:#bf5b04}.c2{stroke:#1a7f37;fill:#1a7f37}.line{fill:none}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.small{fill:#9198a1}.page{fill:#0d1117}.bar{fill:#656c76}.ours{fill:#4493f8}.grid{stroke:#30363d}
.c0{stroke:#4493f8;fill:#4493f8}.c1{stroke:#db8e3c;fill:#db8e3c}.c2{stroke:#3fb950;fill:#3fb950}.line{fill:none}}
</style>
`

// SVG draws the chart.
func (c Chart) SVG() string {
	if len(c.Lines) > 0 {
		return c.lines()
	}
	return c.bars()
}

// page begins a picture.
func (c Chart) page(b *strings.Builder, height int, note string) {
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-label="%s">`+"\n",
		svgWidth, height, svgWidth, height, escape(c.Title))
	b.WriteString(svgStyle)
	fmt.Fprintf(b, `<rect class="page" width="%d" height="%d" rx="6"/>`+"\n", svgWidth, height)
	fmt.Fprintf(b, `<text class="title" x="%d" y="26">%s</text>`+"\n", svgMargin, escape(c.Title))
	fmt.Fprintf(b, `<text class="small" x="%d" y="43">%s</text>`+"\n", svgMargin, escape(note))
}

// logRatio is the ratio from which a scale is logarithmic: below it the
// smallest bar can still be seen.
const logRatio = 20

// bars draws horizontal bars.
func (c Chart) bars() string {
	low, high := math.Inf(1), 0.0
	for _, x := range c.Bars {
		if x.Value > 0 {
			low = math.Min(low, x.Value)
		}
		high = math.Max(high, x.Value)
	}
	logarithmic := high > 0 && high/low > logRatio
	note := "less is better"
	if c.Unit == UnitRate {
		note = "more is better"
	}
	if logarithmic {
		note += "; the scale is logarithmic"
	}
	room := float64(svgWidth - 2*svgMargin - labelWidth - valueWidth)
	length := func(v float64) float64 {
		switch {
		case high == 0 || v <= 0:
			return 0
		case logarithmic: // half of the smallest is the beginning of the scale
			from := low / 2
			return math.Max(1, room*math.Log(v/from)/math.Log(high/from))
		}
		return math.Max(1, room*v/high)
	}
	var b strings.Builder
	height := svgTop + barStep*len(c.Bars) + svgMargin
	c.page(&b, height, note)
	for i, x := range c.Bars {
		y := svgTop + barStep*i + 4
		class := "bar"
		if x.Ours {
			class = "ours"
		}
		end := svgMargin + labelWidth + length(x.Value)
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`, svgMargin+labelWidth-10, y+barHeight-5, escape(short(x.Label)))
		fmt.Fprintf(&b, `<rect class="%s" x="%d" y="%d" width="%.1f" height="%d" rx="2"/>`, class, svgMargin+labelWidth, y, end-svgMargin-labelWidth, barHeight)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d">%s</text>`+"\n", end+8, y+barHeight-5, escape(c.Unit.Format(x.Value)))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// lines draws lines over a logarithmic number.
func (c Chart) lines() string {
	xLow, xHigh, yHigh := math.Inf(1), math.Inf(-1), 0.0
	for _, l := range c.Lines {
		for i := range l.X {
			xLow, xHigh, yHigh = math.Min(xLow, l.X[i]), math.Max(xHigh, l.X[i]), math.Max(yHigh, l.Y[i])
		}
	}
	step := niceStep(yHigh)
	yHigh = step * math.Ceil(yHigh*1.02/step)
	if yHigh <= 0 || math.IsNaN(yHigh) {
		yHigh = 1
	}
	width, bottom := float64(svgWidth-plotLeft-plotRight), float64(svgTop+plotHeight)
	px := func(x float64) float64 {
		if xHigh <= xLow {
			return plotLeft
		}
		return plotLeft + width*math.Log(x/xLow)/math.Log(xHigh/xLow)
	}
	py := func(y float64) float64 { return bottom - plotHeight*y/yHigh }
	var b strings.Builder
	c.page(&b, svgTop+plotHeight+56, string(c.Unit)+", less is better")
	for y := 0.0; y <= yHigh*1.001; y += step {
		fmt.Fprintf(&b, `<line class="grid" x1="%d" y1="%.1f" x2="%.1f" y2="%.1f"/>`, plotLeft, py(y), plotLeft+width, py(y))
		fmt.Fprintf(&b, `<text class="small" x="%d" y="%.1f" text-anchor="end">%g</text>`+"\n", plotLeft-8, py(y)+4, math.Round(y*1000)/1000)
	}
	for _, x := range c.Lines[0].X {
		fmt.Fprintf(&b, `<text class="small" x="%.1f" y="%.1f" text-anchor="middle">%g</text>`+"\n", px(x), bottom+18, x)
	}
	fmt.Fprintf(&b, `<text class="small" x="%.1f" y="%.1f" text-anchor="middle">%s</text>`+"\n", plotLeft+width/2, bottom+38, escape(c.XTitle))
	c.series(&b, px, py)
	b.WriteString("</svg>\n")
	return b.String()
}

// series draws the lines, with their names at their ends, kept apart.
func (c Chart) series(b *strings.Builder, px, py func(float64) float64) {
	var used []float64
	for i, l := range c.Lines {
		if len(l.X) == 0 {
			continue
		}
		class := fmt.Sprintf("c%d", i%3)
		var points []string
		for j := range l.X {
			points = append(points, fmt.Sprintf("%.1f,%.1f", px(l.X[j]), py(l.Y[j])))
			fmt.Fprintf(b, `<circle class="%s" cx="%.1f" cy="%.1f" r="3"/>`, class, px(l.X[j]), py(l.Y[j]))
		}
		fmt.Fprintf(b, `<polyline class="line %s" points="%s"/>`+"\n", class, strings.Join(points, " "))
		last := len(l.X) - 1
		x, y := px(l.X[last])+12, apart(used, py(l.Y[last])+4)
		used = append(used, y)
		fmt.Fprintf(b, `<circle class="%s" cx="%.1f" cy="%.1f" r="4"/><text x="%.1f" y="%.1f">%s</text>`+"\n", class, x+4, y-4, x+14, y, escape(short(l.Name)))
	}
}

// apart moves a label until it is a line away from the others.
func apart(used []float64, y float64) float64 {
	const line = 17
	for range 2 * len(used) {
		for _, u := range used {
			if math.Abs(u-y) < line {
				y = u - line
			}
		}
	}
	return y
}

// niceStep is 1, 2 or 5 times a power of ten: about five of them make high.
func niceStep(high float64) float64 {
	if high <= 0 || math.IsNaN(high) || math.IsInf(high, 0) {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(high/5)))
	for _, f := range []float64{1, 2, 5, 10} {
		if high/(power*f) <= 6 {
			return power * f
		}
	}
	return power * 10
}

// short cuts a label to what its place holds.
func short(s string) string {
	r := []rune(s)
	if len(r) > 24 {
		return string(r[:23]) + "…"
	}
	return s
}

// escape makes text of XML, and drops what XML cannot hold.
func escape(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == 0xfffe || r == 0xffff {
			return '\ufffd'
		}
		return r
	}, s)
	return html.EscapeString(s)
}
