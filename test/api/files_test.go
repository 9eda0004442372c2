package api

import (
	"bytes"
	"io"
	"mime"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"pinfold/sandbox"
)

func TestRanges(t *testing.T) {
	w := newWorld(t, nil)
	box := w.create("alpha")
	const content = "0123456789"
	file := box + "/files?path=x.html"
	w.must(200, request{key: "alpha", method: "PUT", path: file, body: []byte(content)})
	whole := w.must(200, request{key: "alpha", method: "GET", path: file})
	tag := whole.header.Get("ETag")
	h := whole.header
	if h.Get("Content-Type") != "application/octet-stream" || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Accept-Ranges") != "bytes" ||
		h.Get("Content-Disposition") != "attachment; filename=x.html" || h.Get("Content-Length") != "10" || tag == "" {
		t.Errorf("%v", h)
	}
	for _, c := range []struct {
		header map[string]string
		status int
		body   string
		rng    string
	}{
		{map[string]string{"Range": "bytes=0-0"}, 206, "0", "bytes 0-0/10"},
		{map[string]string{"Range": "bytes=2-5"}, 206, "2345", "bytes 2-5/10"},
		{map[string]string{"Range": "bytes=7-"}, 206, "789", "bytes 7-9/10"},
		{map[string]string{"Range": "bytes=-3"}, 206, "789", "bytes 7-9/10"},
		{map[string]string{"Range": "bytes=-99"}, 206, content, "bytes 0-9/10"},
		{map[string]string{"Range": "bytes=5-99999999999"}, 206, "56789", "bytes 5-9/10"},
		{map[string]string{"Range": "bytes=10-"}, 416, "", "bytes */10"},
		{map[string]string{"Range": "bytes=-0"}, 416, "", "bytes */10"},
		{map[string]string{"Range": "bytes=5-2"}, 200, content, ""},
		{map[string]string{"Range": "bytes=0-1,3-4"}, 200, content, ""},
		{map[string]string{"Range": "bytes=99999999999999999999999-"}, 200, content, ""},
		{map[string]string{"Range": "bytes=a-b"}, 200, content, ""},
		{map[string]string{"Range": "lines=1-2"}, 200, content, ""},
		{map[string]string{"Range": "bytes=2-5", "If-Range": tag}, 206, "2345", "bytes 2-5/10"},
		{map[string]string{"Range": "bytes=2-5", "If-Range": `"other"`}, 200, content, ""},
		{map[string]string{"If-None-Match": tag}, 304, "", ""},
		{map[string]string{"If-None-Match": `"other"`}, 200, content, ""},
	} {
		a := w.do(request{key: "alpha", method: "GET", path: file, header: c.header})
		if a.status != c.status || (c.status < 300 && a.body != c.body) || a.header.Get("Content-Range") != c.rng {
			t.Errorf("%v: %d %q %s", c.header, a.status, a.body, a.header.Get("Content-Range"))
		}
		if c.status == 416 {
			a.code(t)
		}
	}
	if a := w.must(200, request{key: "alpha", method: "HEAD", path: file}); a.header.Get("Content-Length") != "10" || a.header.Get("ETag") != tag {
		t.Errorf("%v", a.header)
	}
	w.must(200, request{key: "alpha", method: "PUT", path: file, body: []byte("another one")})
	if a := w.must(200, request{key: "alpha", method: "HEAD", path: file}); a.header.Get("ETag") == tag {
		t.Error("another content has the same ETag")
	}
	w.must(200, request{key: "alpha", method: "PUT", path: box + "/files?path=empty", body: []byte{}})
	if a := w.must(200, request{key: "alpha", method: "GET", path: box + "/files?path=empty"}); a.body != "" {
		t.Errorf("%q", a.body)
	}
}

// A guest chooses names, and with them nothing of our headers.
func TestFileNamesStayNames(t *testing.T) {
	w := newWorld(t, nil)
	box := w.create("alpha")
	for _, name := range []string{`a"; filename="evil.html`, "ünï.txt", "a b.txt", "semi;colon", "back\\slash", "%41.txt"} {
		path := box + "/files?path=" + strings.NewReplacer(" ", "%20", ";", "%3B", "%", "%25", `"`, "%22", "\\", "%5C").Replace(name)
		a := w.do(request{key: "alpha", method: "PUT", path: path, body: []byte("x")})
		if a.status != 200 {
			t.Errorf("%q: %d %s", name, a.status, a.body)
			continue
		}
		d := w.must(200, request{key: "alpha", method: "GET", path: path}).header.Get("Content-Disposition")
		kind, parameters, err := mime.ParseMediaType(d)
		if err != nil || kind != "attachment" || len(parameters) != 1 || strings.ContainsAny(parameters["filename"], "\r\n\"\\/") {
			t.Errorf("%q: %q", name, d)
		}
	}
}

// Files stream through: what the server holds does not grow with them.
func TestFilesStream(t *testing.T) {
	const total = 64 << 20
	w := newWorld(t, nil)
	box := w.create("alpha")
	content := bytes.Repeat([]byte("0123456789abcdef"), total/16)
	for _, known := range []bool{true, false} {
		var body io.Reader = bytes.NewReader(content)
		if !known {
			body = io.MultiReader(body) // hides the length: chunked
		}
		var info sandbox.FileInfo
		w.must(200, request{key: "alpha", method: "PUT", path: box + "/files?path=big", reader: body}).json(t, &info)
		if info.Size != total {
			t.Fatalf("%d bytes arrived", info.Size)
		}
	}
	resp := w.open(request{key: "alpha", method: "GET", path: box + "/files?path=big"})
	n, err := io.Copy(io.Discard, resp.body)
	if n != total || err != nil || resp.length != total {
		t.Fatalf("%d bytes, %v", n, err)
	}
	runtime.KeepAlive(content)
}

// A body that breaks off is an error, not a short file that looks whole.
func TestUploadsThatBreakOff(t *testing.T) {
	w := newWorld(t, nil)
	box := w.create("alpha")
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "PUT "+box+"/files?path=x HTTP/1.1\r\nHost: localhost\r\nContent-Length: "+strconv.Itoa(1000)+"\r\nAuthorization: Bearer "+w.keys["alpha"]+"\r\n\r\nshort")
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
	}
	b, _ := io.ReadAll(conn)
	if !strings.HasPrefix(string(b), "HTTP/1.1 400") {
		t.Errorf("%.300s", b)
	}
	for _, header := range []map[string]string{{"Content-Range": "bytes 0-1/5"}, {"Content-Encoding": "gzip"}} {
		if a := w.do(request{key: "alpha", method: "PUT", path: box + "/files?path=y", body: []byte("x"), header: header}); a.status != 400 && a.status != http.StatusUnsupportedMediaType {
			t.Errorf("%v: %d", header, a.status)
		}
	}
}

// A file whose name cannot be printed does not vanish in silence.
func TestNamesThatCannotBePrintedAreCounted(t *testing.T) {
	w := newWorld(t, nil)
	box := w.create("alpha")
	files := w.driver.Machines()[0].Files
	for _, name := range []string{"a", "evil\x1b[2J", "d/b\nb"} {
		files.Put("/home/user/"+name, "1")
	}
	var list struct {
		Items       []sandbox.FileInfo
		Unprintable *int
	}
	w.must(200, request{key: "alpha", method: "GET", path: box + "/files/list?depth=2"}).json(t, &list)
	if len(list.Items) != 2 || list.Unprintable == nil || *list.Unprintable != 2 {
		t.Errorf("list: %+v", list)
	}
	list.Unprintable = nil
	w.must(200, request{key: "alpha", method: "GET", path: box + "/changes"}).json(t, &list)
	if list.Unprintable == nil || *list.Unprintable != 2 {
		t.Errorf("changes: %+v", list)
	}
	resp := w.open(request{key: "alpha", method: "GET", path: box + "/archive"})
	if _, err := io.Copy(io.Discard, resp.body); err != nil || resp.trailer.Get("X-Archive-Skipped") != "2" {
		t.Errorf("archive: %v %v", resp.trailer, err)
	}
}
