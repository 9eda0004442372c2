package telemetry

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"pinfold/sandbox"
)

// Bounds on what waits to be sent. When the collector is slow, spans are
// dropped: the server does not wait for it.
const (
	maxQueue      = 2048
	maxBatch      = 512
	exportTimeout = 5 * time.Second
	batchTimeout  = 2 * time.Second
	maxAttribute  = 128 // bytes of one attribute's value
	maxReply      = 64 << 10
)

// exporter sends spans to a collector, one batch at a time.
type exporter struct {
	url      string
	headers  http.Header
	resource []attribute
	client   *http.Client
	log      *slog.Logger

	queue   chan span
	quit    chan struct{}
	over    chan struct{} // closed when everything was sent, or given up
	stop    context.CancelFunc
	once    sync.Once
	failed  bool // the last batch
	sending context.Context
}

func newExporter(endpoint string, headers http.Header, resource []attribute, log *slog.Logger) *exporter {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	x := &exporter{
		url: endpoint, headers: headers, resource: resource, log: log,
		client: &http.Client{
			Timeout:       exportTimeout,
			Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConns: 1, IdleConnTimeout: time.Minute},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		queue: make(chan span, maxQueue), quit: make(chan struct{}), over: make(chan struct{}),
	}
	x.sending, x.stop = context.WithCancel(context.Background())
	go x.run()
	return x
}

// put queues a span, or drops it when the queue is full.
func (x *exporter) put(s span) {
	select {
	case x.queue <- s:
	default:
	}
}

// run sends batches until shutdown.
func (x *exporter) run() {
	defer close(x.over)
	ticker := time.NewTicker(batchTimeout)
	defer ticker.Stop()
	var batch []span
	flush := func() {
		if len(batch) > 0 {
			x.report(x.send(batch))
			batch = batch[:0]
		}
	}
	for {
		select {
		case s := <-x.queue:
			if batch = append(batch, s); len(batch) >= maxBatch {
				flush()
			}
		case <-ticker.C:
			flush()
		case <-x.quit:
			for len(x.queue) > 0 && x.sending.Err() == nil {
				if batch = append(batch, <-x.queue); len(batch) >= maxBatch {
					flush()
				}
			}
			flush()
			return
		}
	}
}

// send posts one batch as OTLP/HTTP wants it.
func (x *exporter) send(batch []span) error {
	req, err := http.NewRequestWithContext(x.sending, http.MethodPost, x.url, bytes.NewReader(encode(x.resource, batch)))
	if err != nil {
		return err
	}
	maps.Copy(req.Header, x.headers)
	req.Header.Set("Content-Type", "application/x-protobuf")
	resp, err := x.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()                                         //nolint:errcheck // it was only read
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxReply)) // so that the connection is used again
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("the collector answered %s", resp.Status)
	}
	return nil
}

// report says in the log when sending begins to fail and when it works again,
// and nothing in between.
func (x *exporter) report(err error) {
	switch {
	case err != nil && !x.failed:
		x.log.Warn("traces cannot be sent", "error", sandbox.SafeText(err.Error(), 200))
	case err == nil && x.failed:
		x.log.Info("traces are sent again")
	}
	x.failed = err != nil
}

// shutdown sends what is queued, until ctx ends.
func (x *exporter) shutdown(ctx context.Context) error {
	x.once.Do(func() { close(x.quit) })
	defer x.client.CloseIdleConnections()
	defer x.stop()
	select {
	case <-x.over:
		return nil
	case <-ctx.Done():
		x.stop()
		<-x.over
		return ctx.Err()
	}
}

// parseHeaders reads OTEL_EXPORTER_OTLP_HEADERS: "name=value,name=value", with
// percent-encoded values. What is malformed is left out, as the specification
// of OpenTelemetry's environment variables wants it.
func parseHeaders(text string) http.Header {
	headers := http.Header{}
	for pair := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if name = strings.TrimSpace(name); ok && err == nil && name != "" && !strings.ContainsAny(name+value, "\r\n\x00") {
			headers.Set(name, value)
		}
	}
	return headers
}
