package telemetry

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"pinfold/internal/engine"
	"pinfold/sandbox"
)

// Whatever becomes a label, the page stays readable and its lines stay few.
func TestHostileLabels(t *testing.T) {
	tel := newTelemetry(t, Options{})
	evil := "a\"} 1\npinfold_draining 5\\\x1b\xff{"
	tel.Watch(func() engine.Stats {
		return engine.Stats{Pools: []sandbox.PoolInfo{{PoolSpec: sandbox.PoolSpec{Name: evil}}}}
	})
	for i := range 3 * maxSeries {
		tel.metrics.requests.with(fmt.Sprint(i, evil), "GET", "2xx").add(1)
	}
	all := scrape(t, tel)
	if n := len(all["pinfold_http_requests_total"].GetMetric()); n > maxSeries+1 {
		t.Errorf("%d series", n)
	}
	if got := value(t, all, "pinfold_http_requests_total", "route=other,method=other,code=other"); got != 2*maxSeries {
		t.Errorf("%v requests beyond the bound", got)
	}
	if got := value(t, all, "pinfold_draining", ""); got != 0 {
		t.Errorf("a label forged a metric: %v", got)
	}
}

// Counting from many goroutines loses nothing, and a page that is read
// meanwhile does not contradict itself.
func TestCountingTogether(t *testing.T) {
	tel := newTelemetry(t, Options{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				tel.RunFinished(aResult())
			}
		})
	}
	for range 50 {
		for _, m := range scrape(t, tel)["pinfold_run_phase_seconds"].GetMetric() {
			h := m.GetHistogram()
			for _, b := range h.GetBucket() {
				if b.GetCumulativeCount() > h.GetSampleCount() {
					t.Errorf("%d of %d are below %v", b.GetCumulativeCount(), h.GetSampleCount(), b.GetUpperBound())
				}
			}
		}
	}
	wg.Wait()
	all := scrape(t, tel)
	if got := value(t, all, "pinfold_runs_finished_total", "status=killed"); got != 8000 {
		t.Errorf("%v runs", got)
	}
	if got := value(t, all, "pinfold_run_cpu_seconds_total", ""); math.Abs(got-12000) > 1e-6 {
		t.Errorf("%v seconds", got)
	}
}

func TestHistogramBounds(t *testing.T) {
	f := newFamily(kindHistogram, "x", "y")
	for _, v := range []float64{0, .0005, .00051, 300, 301, 1e9} {
		f.with().observe(v)
	}
	var b strings.Builder
	p := newPage(&b)
	p.family(f)
	_ = p.Flush()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	all, err := parser.TextToMetricFamilies(strings.NewReader(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	h := all["x"].GetMetric()[0].GetHistogram()
	counts := map[float64]uint64{}
	for _, bucket := range h.GetBucket() {
		counts[bucket.GetUpperBound()] = bucket.GetCumulativeCount()
	}
	if counts[.0005] != 2 || counts[.001] != 3 || counts[300] != 4 || counts[math.Inf(1)] != 6 || h.GetSampleCount() != 6 {
		t.Errorf("%v of %d", counts, h.GetSampleCount())
	}
}

func TestTraceParent(t *testing.T) {
	const trace, parent = "0123456789abcdef0123456789abcdef", "0123456789abcdef"
	for header, want := range map[string]bool{
		"00-" + trace + "-" + parent + "-01":                       true,
		"00-" + trace + "-" + parent + "-00":                       true,
		"cc-" + trace + "-" + parent + "-00-more":                  true, // a later version may have more
		"00-" + trace + "-" + parent + "-00-more":                  false,
		"ff-" + trace + "-" + parent + "-00":                       false,
		"00-" + strings.ToUpper(trace) + "-" + parent + "-00":      false,
		"00-" + strings.Repeat("0", 32) + "-" + parent + "-00":     false,
		"00-" + trace + "-" + strings.Repeat("0", 16) + "-00":      false,
		"00-" + strings.Repeat("x", 32) + "-" + parent + "-00":     false,
		"00-" + trace[1:] + "-" + parent + "-00":                   false,
		"cc-" + trace + "-" + parent + strings.Repeat("-00", 1000): false,
		"": false,
	} {
		if _, _, ok := parseParent(header); ok != want {
			t.Errorf("%.80q: %v", header, ok)
		}
	}
}

func TestHeadersFromTheEnvironment(t *testing.T) {
	h := parseHeaders("authorization=Bearer%20x, a = 1 ,broken,=x,b=%zz,c=a%0d%0ab,,d=")
	if len(h) != 3 || h.Get("Authorization") != "Bearer x" || h.Get("A") != "1" || h.Get("D") != "" {
		t.Errorf("%v", h)
	}
}

func FuzzOTLP(f *testing.F) {
	f.Add("name", "key", "text", int64(-1))
	f.Add("\xff", "\xff", strings.Repeat("ü", maxAttribute), int64(math.MinInt64))
	f.Fuzz(func(t *testing.T, name, key, text string, number int64) {
		s := newSpan(name, traceID{1}, spanID{2})
		s.attributes = []attribute{{key: key, text: text}, {key: key, number: number}}
		var req collector.ExportTraceServiceRequest
		if err := proto.Unmarshal(encode(nil, []span{s}), &req); err != nil {
			t.Fatal(err)
		}
		got := req.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans()[0]
		if got.GetName() != strings.ToValidUTF8(name, "?") || got.GetAttributes()[1].GetValue().GetIntValue() != number {
			t.Fatalf("%v", got)
		}
		if got.GetAttributes()[0].GetKey() != strings.ToValidUTF8(key, "?") {
			t.Fatalf("%v", got)
		}
	})
}
