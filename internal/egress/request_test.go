package egress

import (
	"errors"
	"strings"
	"testing"
)

func TestParseHead(t *testing.T) {
	for head, want := range map[string]request{
		"GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n":                                              {host: "ok.test"},
		"GET /a?b=http://evil/ HTTP/1.0\r\nhost:OK.test.:8080 \r\nX: y\r\n\r\n":                {host: "ok.test", port: 8080},
		"OPTIONS * HTTP/1.1\r\nHost: ok.test\r\n\r\n":                                          {host: "ok.test"},
		"POST / HTTP/1.1\r\nHost: ok.test\r\nContent-Length: 5\r\n\r\n":                        {host: "ok.test", length: 5},
		"POST / HTTP/1.1\r\nHost: ok.test\r\nTransfer-Encoding: Chunked\r\n\r\n":               {host: "ok.test", chunked: true},
		"GET / HTTP/1.1\r\nHost: ok.test\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n": {host: "ok.test", upgrade: true, websocket: true},
		"GET / HTTP/1.1\r\nHost: ok.test\r\nUpgrade: H2c\r\nConnection: upgrade\r\n\r\n":       {host: "ok.test", h2c: true},
		"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n":                                            {host: "127.0.0.1"},
		"GET / HTTP/1.1\r\nHost: \r\n\r\n":                                                     {},
		"GET / HTTP/1.1\r\nHost: user@ok.test\r\n\r\n":                                         {host: "user@ok.test"},
		"GET / HTTP/1.1\r\nHost: ok.test, evil.test\r\n\r\n":                                   {host: "ok.test, evil.test"},
	} {
		if got, err := parseHead([]byte(head)); err != nil || got != want {
			t.Errorf("%q: %+v %v", head, got, err)
		}
	}
	host := "Host: ok.test\r\n"
	for _, head := range []string{
		"", "\r\n\r\n", "GET / HTTP/1.1\r\n" + host, "GET / HTTP/1.1\r\n\r\n", "GET /\r\n" + host + "\r\n",
		"GET http://evil.test/ HTTP/1.1\r\n" + host + "\r\n", "GET ok.test/ HTTP/1.1\r\n" + host + "\r\n", "CONNECT evil.test:443 HTTP/1.1\r\n" + host + "\r\n", "PRI * HTTP/2.0\r\n" + host + "\r\n",
		"GET  / HTTP/1.1\r\n" + host + "\r\n", "GET\t/\tHTTP/1.1\r\n" + host + "\r\n", "GET / HTTP/1.1 \r\n" + host + "\r\n", "GET / HTTP/2.0\r\n" + host + "\r\n", "GET /\x7f HTTP/1.1\r\n" + host + "\r\n", "GET /ä HTTP/1.1\r\n" + host + "\r\n",
		"GET / HTTP/1.1\r\n" + host + host + "\r\n", "GET / HTTP/1.1\r\n" + host + "HOST: evil.test\r\n\r\n", "GET / HTTP/1.1\r\n" + host + " folded\r\n\r\n", "GET / HTTP/1.1\r\nHost : ok.test\r\n\r\n", "GET / HTTP/1.1\r\n" + host + "X\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: ok.test\nHost: evil.test\r\n\r\n", "GET / HTTP/1.1\r\nHost: ok.test\rX: y\r\n\r\n", "GET / HTTP/1.1\r\nHost: ok.test\x00\r\n\r\n", "GET / HTTP/1.1\r\nHost: ok.test:\r\n\r\n", "GET / HTTP/1.1\r\nHost: ok.test:0\r\n\r\n", "GET / HTTP/1.1\r\nHost: ok.test:80:80\r\n\r\n",
		"POST / HTTP/1.1\r\n" + host + "Content-Length: 1\r\nContent-Length: 1\r\n\r\n", "POST / HTTP/1.1\r\n" + host + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "POST / HTTP/1.1\r\n" + host + "Content-Length: +1\r\n\r\n", "POST / HTTP/1.1\r\n" + host + "Content-Length: 1, 1\r\n\r\n", "POST / HTTP/1.1\r\n" + host + "Content-Length: 0x1\r\n\r\n", "POST / HTTP/1.1\r\n" + host + "Content-Length: 9223372036854775807\r\n\r\n", "POST / HTTP/1.1\r\n" + host + "Content-Length:\r\n\r\n",
		"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip, chunked\r\n\r\n", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", "POST / HTTP/1.0\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding : chunked\r\n\r\n", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: \x0bchunked\r\n\r\n",
		"GET / HTTP/1.1\r\n" + host + strings.Repeat("A: b\r\n", maxHeaders) + "\r\n",
	} {
		if got, err := parseHead([]byte(head)); !errors.Is(err, errRequest) {
			t.Errorf("%.80q is %+v", head, got)
		}
	}
}

// What a lenient server could take for HTTP is never another protocol.
func TestRecognize(t *testing.T) {
	for data, want := range map[string]protocol{
		"": undecided, "G": undecided, "GET": undecided, "GET / HTTP/1.1": undecided, "\r\n": undecided, "\r\n\r\nGET /": undecided, "\n \n": undecided, "EHLO x": undecided, "hello": undecided,
		"GET / HTTP/1.1\r\n": speaksHTTP, "\r\n\nGET / HTTP/1.1\n": speaksHTTP, "get / http/1.1\r\n": speaksHTTP, "FOO\t/\tHTTP/1.1\n": speaksHTTP, "GET\x0b/ HTTP/1.0\n": speaksHTTP, "GET\r/ HTTP/1.1\n": speaksHTTP, "PRI * HTTP/2.0\r\n": speaksHTTP,
		"\x16": speaksTLS, "\x16\x03\x01": speaksTLS,
		"EHLO x\r\n": speaksOther, "PING\r\n": speaksOther, "SSH-2.0-x\r\n": speaksOther, "*1\r\n": speaksOther, "\x00\x00\x00\x08": speaksOther, "AMQP\x00\x00": speaksOther, "{\"a\"": speaksOther, "NICK a\n": speaksOther,
		"GET " + strings.Repeat("a", maxHead): speaksHTTP, strings.Repeat("a", 100): undecided, strings.Repeat("a", 100) + " / HTTP/1.1\r\n": speaksHTTP, strings.Repeat("a", 100) + "\n": speaksOther,
		"GET\xa0/\xa0HTTP/1.1\r\n": speaksHTTP, " \x85GET\x1c/ HTTP/1.1\r\n": speaksHTTP, "\xa0\x00": speaksOther, "GET\x80/ HTTP/1.1\r\n": speaksOther,
	} {
		if got := recognize([]byte(data)); got != want {
			t.Errorf("%.40q: %d, not %d", data, got, want)
		}
	}
}

func FuzzParseHead(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n"))
	f.Add([]byte("POST / HTTP/1.1\r\nHost: ok.test:80\r\nTransfer-Encoding: chunked\r\n\r\n"))
	f.Fuzz(func(t *testing.T, head []byte) {
		r, err := parseHead(head)
		if err != nil {
			return
		}
		text := strings.ToLower(string(head))
		if strings.Count(text, "\nhost:") != 1 || r.host != "" && !strings.Contains(text, strings.ToLower(r.host)) || r.length < 0 || r.chunked && r.length > 0 || recognize(head) != speaksHTTP {
			t.Fatalf("%q is %+v", head, r)
		}
	})
}
