package api

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// phone is the part of the page's style that is for small screens.
var phone = regexp.MustCompile(`(?s)@media \(max-width: 50rem\) \{\n(.*?)\n\}`)

// On a phone the navigation is folded above the text, and tables are one column. A
// browser sees it, below; the rules that make it so are here.
func TestPageIsForPhones(t *testing.T) {
	page := string(newServer(Options{Version: "v1"}).page)
	if !strings.Contains(page, `<meta name="viewport" content="width=device-width, initial-scale=1">`) {
		t.Error("a phone shows the page as wide as a desk's, and small")
	}
	rules := phone.FindString(page)
	for _, rule := range []string{
		`body { display: block; }`, `nav { position: static; height: auto;`, `nav div { display: none;`,
		`nav input:checked ~ div { display: block; }`, `nav label { display: inline;`, `td { display: block;`,
	} {
		if !strings.Contains(rules, rule) {
			t.Errorf("on small screens there is no rule %s", rule)
		}
	}
	if !strings.Contains(page, `<input type="checkbox" id="contents"><label for="contents">`) {
		t.Error("nothing unfolds the navigation")
	}
}

// look is what a browser makes of the page.
type look struct {
	Scroll  int     // how wide all of it is
	Nav     float64 // how high the navigation is
	Top     float64 // where the text begins
	Width   float64 // and how wide it is
	Links   bool    // whether the links of the navigation are seen
	Clicked bool    // the same when Contents was touched
}

// measure shows the page as a phone does, 375 pixels wide, and writes what it sees into
// the document: media queries of a frame go by the frame.
const measure = `<!doctype html><iframe id="phone" src="/page" width="375" height="667"></iframe><pre id="look"></pre><script>
document.getElementById("phone").onload = e => {
	const page = e.target.contentDocument, of = s => page.querySelector(s).getBoundingClientRect();
	const links = () => page.querySelector("nav li a").getClientRects().length > 0;
	const look = {Scroll: page.documentElement.scrollWidth, Nav: of("nav").height, Top: of("main").top, Width: of("main").width, Links: links()};
	page.querySelector("nav label").click();
	look.Clicked = links();
	document.getElementById("look").textContent = JSON.stringify(look);
};
</script>`

// browser finds one of Chromium's programs. scripts/setup installs the first, which is on
// Debian only, so only CI must have it.
func browser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium-headless-shell", "chromium"} {
		if file, err := exec.LookPath(name); err == nil {
			return file
		}
	}
	const missing = "there is no browser; on Debian: apt-get install chromium-headless-shell"
	if os.Getenv("CI") == "true" {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}

// TestPageInABrowser looks at the page as a phone shows it. The control is the page
// without its rules for small screens.
func TestPageInABrowser(t *testing.T) {
	browser := browser(t)
	page := string(newServer(Options{Version: "v1"}).page)
	l := seenBy(t, browser, page)
	if l.Scroll > 375 || l.Nav > 80 || l.Top > 80 || l.Width < 340 || l.Links || !l.Clicked {
		t.Errorf("on a phone: %+v", l)
	}
	if l := seenBy(t, browser, phone.ReplaceAllString(page, "")); l.Width > 250 || !l.Links {
		t.Errorf("control: without the rules for phones it is as good: %+v", l)
	}
}

// seenBy has the browser measure a page.
func seenBy(t *testing.T, browser, page string) (l look) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/page", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprint(w, page)
	})
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprint(w, measure)
	})
	s := httptest.NewServer(mux)
	defer s.Close()
	profile, err := os.MkdirTemp("", "pinfold-page-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(profile) // what it leaves at work may write there for a moment yet
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", //nolint:gosec // a browser
		"--user-data-dir="+profile, "--virtual-time-budget=10000", "--dump-dom", s.URL+"/").Output()
	if err != nil {
		t.Fatalf("%s does not run here: %v", browser, err)
	}
	found := regexp.MustCompile(`<pre id="look">(.*?)</pre>`).FindSubmatch(out)
	if found == nil || json.Unmarshal([]byte(html.UnescapeString(string(found[1]))), &l) != nil {
		t.Fatalf("the browser has measured nothing: %.2000s", out)
	}
	return l
}
