//go:build linux

package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pinfold/sandbox"
)

// The benchmark's clients are a process of their own, so that the server's CPU
// time is the server's: this program again, told so by these.
const (
	loadEnv  = "PINFOLD_BENCH_LOAD" // the server's address
	keyEnv   = "PINFOLD_BENCH_KEY"
	bodyEnv  = "PINFOLD_BENCH_BODY"
	countEnv = "PINFOLD_BENCH_COUNT"
	widthEnv = "PINFOLD_BENCH_WIDTH"
)

// bodyRefused is a request that is read, recognized and refused: what it takes
// is what HTTP takes.
const (
	bodyRefused = `{"language": "python", "code": "print(1)", "limits": {"memory_bytes": -1}}`
	refusals    = 30
)

func TestMain(m *testing.M) {
	if os.Getenv(loadEnv) != "" {
		if err := load(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// loaded is what the clients saw: medians in milliseconds.
type loaded struct {
	Request, HTTP, Queue, Create, Exec, Collect float64

	PerSecond float64
	Warm      int // runs that found an interpreter
}

// load sends requests and prints what it saw.
func load() error {
	count, err := strconv.Atoi(os.Getenv(countEnv))
	if err != nil {
		return err
	}
	width, err := strconv.Atoi(os.Getenv(widthEnv))
	if err != nil {
		return err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: width}
	defer transport.CloseIdleConnections()
	var out loaded
	var refused []float64
	for range refusals {
		start := time.Now()
		if err := post(transport, bodyRefused, http.StatusBadRequest, nil); err != nil {
			return err
		}
		refused = append(refused, sinceMS(start))
	}
	out.HTTP = median(refused)
	began := time.Now()
	walls, results, err := sendAll(transport, count, width)
	if err != nil {
		return err
	}
	out.PerSecond = float64(count) / time.Since(began).Seconds()
	of := func(f func(sandbox.Timings) float64) float64 {
		var v []float64
		for _, r := range results {
			v = append(v, f(r.Timings))
		}
		return median(v)
	}
	out.Request = median(walls)
	out.Queue = of(func(t sandbox.Timings) float64 { return t.QueueMS })
	out.Create = of(func(t sandbox.Timings) float64 { return t.CreateMS })
	out.Exec = of(func(t sandbox.Timings) float64 { return t.ExecMS })
	out.Collect = of(func(t sandbox.Timings) float64 { return t.CollectMS })
	for _, r := range results {
		if r.Warm {
			out.Warm++
		}
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

// sendAll has runs done, width at a time.
func sendAll(rt http.RoundTripper, count, width int) (walls []float64, results []sandbox.Result, err error) {
	var mu sync.Mutex
	var left atomic.Int64
	left.Store(int64(count))
	var wg sync.WaitGroup
	for range width {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				var r sandbox.Result
				start := time.Now()
				failed := post(rt, os.Getenv(bodyEnv), http.StatusOK, &r)
				took := sinceMS(start)
				if failed == nil && r.Stdout != "1\n" {
					failed = fmt.Errorf("%s printed %q: %+v", r.ID, r.Stdout, r.Cause)
				}
				mu.Lock()
				walls, results = append(walls, took), append(results, r)
				if failed != nil {
					err = failed
					left.Store(0)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return walls, results, err
}

func sinceMS(start time.Time) float64 { return float64(time.Since(start)) / float64(time.Millisecond) }

// post sends one request and reads the answer into v, unless that is nil.
func post(rt http.RoundTripper, body string, status int, v any) error {
	req, err := http.NewRequest(http.MethodPost, os.Getenv(loadEnv)+"/v1/runs", strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+os.Getenv(keyEnv))
	req.Header.Set("Content-Type", "application/json")
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != status {
		return fmt.Errorf("%d: %.300s", resp.StatusCode, b)
	}
	if v == nil {
		return nil
	}
	return json.Unmarshal(b, v)
}

func median(v []float64) float64 {
	slices.Sort(v)
	if len(v) == 0 {
		return 0
	}
	return v[len(v)/2]
}

// load has a process of its own send requests.
func (m *measured) load(b *testing.B, body string, count, width int) loaded {
	b.Helper()
	program, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), loadEnv+"="+m.url, keyEnv+"="+m.key, bodyEnv+"="+body, fmt.Sprintf("%s=%d", countEnv, count), fmt.Sprintf("%s=%d", widthEnv, width))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	var l loaded
	if err == nil {
		err = json.Unmarshal(out, &l)
	}
	if err != nil {
		b.Fatal(err)
	}
	return l
}
