// Package load is the client of the benchmark's requests: it runs inside a sandbox and
// outside of one, so that what differs is the way.
package load

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Command is the first argument of a program that is to be the client; the second is the
// Task.
const Command = "bench-load"

// Task says what is asked for.
type Task struct {
	URL  string `json:"url"`
	Dial string `json:"dial,omitempty"` // where the URL's host is, if not where its name leads
	CA   string `json:"ca,omitempty"`   // PEM, beside what the environment trusts

	// Requests at a constant rate, each on a connection that is there, or on a new one. A
	// rate of zero is one request, as fast as its answer comes.
	Rate  int           `json:"rate,omitempty"`
	Count int           `json:"count,omitempty"`
	New   bool          `json:"new,omitempty"`
	Wait  time.Duration `json:"wait"` // for one request
}

// Seen is what the client saw.
type Seen struct {
	// Latencies are from when a request was to be sent to the end of its answer: one that
	// is late because others were counts as late.
	Latencies []time.Duration `json:"latencies"`
	Bytes     int64           `json:"bytes"` // of answers
}

// Warmup is how many requests nobody measures come first.
const Warmup = 20

// connections is how many there are at once where they are kept.
const connections = 32

// Main is the program.
func Main(args []string, stdout, stderr io.Writer) int {
	err := errors.New("one argument, a task")
	if len(args) == 1 {
		err = main(args[0], stdout)
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

func main(text string, stdout io.Writer) error {
	var t Task
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return err
	}
	c, err := t.client()
	if err != nil {
		return err
	}
	var seen Seen
	if t.Rate == 0 {
		began := time.Now()
		seen.Bytes, err = c.get(began)
		seen.Latencies = []time.Duration{time.Since(began)}
	} else {
		seen, err = c.constant()
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(stdout).Encode(seen)
}

// client does a task.
type client struct {
	Task
	http *http.Client
}

func (t Task) client() (*client, error) {
	trusted, err := x509.SystemCertPool()
	if err != nil {
		return nil, err
	}
	if t.CA != "" {
		trusted.AppendCertsFromPEM([]byte(t.CA))
	}
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: trusted},
		DisableKeepAlives: t.New, DisableCompression: true,
		MaxIdleConnsPerHost: connections,
	}
	if !t.New {
		transport.MaxConnsPerHost = connections
	}
	if t.Rate == 0 {
		transport.ReadBufferSize = 256 << 10
	}
	if t.Dial != "" {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", t.Dial)
		}
	}
	return &client{t, &http.Client{Transport: transport}}, nil
}

// get asks once. Patience begins when it was to be sent.
func (c *client) get(intended time.Time) (int64, error) {
	ctx, cancel := context.WithDeadline(context.Background(), intended.Add(c.Wait))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL, nil)
	if err != nil {
		return 0, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	n, err := c.drain(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return n, err
}

// drain reads an answer to its end: what is large with a large buffer.
func (c *client) drain(body io.Reader) (int64, error) {
	if c.Rate > 0 {
		return io.Copy(io.Discard, body)
	}
	return io.CopyBuffer(struct{ io.Writer }{io.Discard}, body, make([]byte, 256<<10))
}

// constant asks at a constant rate, whether or not answers come.
func (c *client) constant() (Seen, error) {
	for range Warmup {
		if _, err := c.get(time.Now()); err != nil {
			return Seen{}, err
		}
	}
	var (
		seen   = Seen{Latencies: make([]time.Duration, c.Count)}
		failed error
		mu     sync.Mutex
		wg     sync.WaitGroup
		began  = time.Now()
	)
	for i := range c.Count {
		intended := began.Add(time.Duration(i) * time.Second / time.Duration(c.Rate))
		time.Sleep(time.Until(intended))
		wg.Go(func() {
			n, err := c.get(intended)
			took := time.Since(intended)
			mu.Lock()
			defer mu.Unlock()
			seen.Latencies[i], seen.Bytes = took, seen.Bytes+n
			failed = errors.Join(failed, err)
		})
	}
	wg.Wait()
	if failed != nil {
		return Seen{}, failed
	}
	return seen, nil
}
