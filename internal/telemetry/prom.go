package telemetry

import (
	"bufio"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// What Prometheus reads is a few lines of text, and we need three kinds of
// metrics with labels that are known beforehand. Its client library would cost
// every start of the program more than a millisecond, that of "pinfold run" too.
// Format: https://prometheus.io/docs/instrumenting/exposition_formats/, version
// 0.0.4.

// maxSeries bounds the series of one metric. Labels are closed sets; this is
// for the case that one is not.
const maxSeries = 1000

const (
	kindCounter   = "counter"
	kindGauge     = "gauge"
	kindHistogram = "histogram"
)

// family is one metric with all its series. It is safe for concurrent use.
type family struct {
	name, help, kind string
	labels           []string

	mu     sync.RWMutex
	series map[string]*series // by labels, as they are written
}

// series is one line, or one histogram.
type series struct {
	value   float
	count   atomic.Uint64
	buckets []atomic.Uint64 // of histograms: how many fell into each
}

// float is a number that is added to.
type float struct{ bits atomic.Uint64 }

func (f *float) add(v float64) {
	for {
		old := f.bits.Load()
		if f.bits.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+v)) {
			return
		}
	}
}

func (f *float) get() float64 { return math.Float64frombits(f.bits.Load()) }

func newFamily(kind, name, help string, labels ...string) *family {
	f := &family{name: name, help: help, kind: kind, labels: labels, series: map[string]*series{}}
	if len(labels) == 0 {
		f.with() // a metric without labels is there from the beginning
	}
	return f
}

// with returns the series with these values of the labels.
func (f *family) with(values ...string) *series {
	key := labelText(f.labels, values)
	f.mu.RLock()
	s := f.series[key]
	f.mu.RUnlock()
	if s != nil {
		return s
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.series) >= maxSeries {
		key = labelText(f.labels, slices.Repeat([]string{other}, len(f.labels)))
	}
	if s = f.series[key]; s == nil {
		s = &series{}
		if f.kind == kindHistogram {
			s.buckets = make([]atomic.Uint64, len(seconds))
		}
		f.series[key] = s
	}
	return s
}

// add counts; a gauge may also go down.
func (s *series) add(v float64) { s.value.add(v) }

// observe enters a duration into a histogram.
func (s *series) observe(v float64) {
	if i, _ := slices.BinarySearch(seconds, v); i < len(s.buckets) {
		s.buckets[i].Add(1)
	}
	s.value.add(v)
	s.count.Add(1)
}

// labelText writes labels as they stand in a line: cause="memory",limit="x".
func labelText(names, values []string) string {
	var b strings.Builder
	for i, name := range names {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(name + `="`)
		_, _ = labelEscapes.WriteString(&b, strings.ToValidUTF8(values[i], "?")) // a Builder takes everything
		b.WriteByte('"')
	}
	return b.String()
}

var labelEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// page writes metrics.
type page struct{ *bufio.Writer }

func newPage(w io.Writer) page { return page{bufio.NewWriter(w)} }

// head begins a metric.
func (p page) head(kind, name, help string) {
	_, _ = p.WriteString("# HELP " + name + " " + help + "\n# TYPE " + name + " " + kind + "\n")
}

// line is one sample. The writer keeps its first error until it is flushed.
func (p page) line(name, labels string, v float64) {
	if labels != "" {
		labels = "{" + labels + "}"
	}
	_, _ = p.WriteString(name + labels + " " + strconv.FormatFloat(v, 'g', -1, 64) + "\n")
}

// single is a metric with one series and no labels.
func (p page) single(kind, name, help string, v float64) {
	p.head(kind, name, help)
	p.line(name, "", v)
}

// family writes all series, in a fixed order.
func (p page) family(f *family) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	p.head(f.kind, f.name, f.help)
	for _, key := range slices.Sorted(maps.Keys(f.series)) {
		s := f.series[key]
		if f.kind != kindHistogram {
			p.line(f.name, key, s.value.get())
			continue
		}
		p.histogram(f.name, key, s)
	}
}

func (p page) histogram(name, labels string, s *series) {
	prefix := labels
	if prefix != "" {
		prefix += ","
	}
	total, sum := s.count.Load(), s.value.get()
	var below uint64
	for i, bound := range seconds {
		below += s.buckets[i].Load()
		// An observation may come meanwhile; the page must not contradict itself.
		p.line(name+"_bucket", prefix+`le="`+strconv.FormatFloat(bound, 'g', -1, 64)+`"`, float64(min(below, total)))
	}
	p.line(name+"_bucket", prefix+`le="+Inf"`, float64(total))
	p.line(name+"_sum", labels, sum)
	p.line(name+"_count", labels, float64(total))
}
