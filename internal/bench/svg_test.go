package bench

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// elements parses a picture strictly and returns its elements' attributes.
func elements(t *testing.T, svg string) (all []xml.StartElement, text string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all, text
		}
		if err != nil {
			t.Fatalf("not well-formed: %v\n%s", err, svg)
		}
		switch e := token.(type) {
		case xml.StartElement:
			all = append(all, e.Copy())
		case xml.CharData:
			text += string(e)
		}
	}
}

func attribute(e xml.StartElement, name string) string {
	for _, a := range e.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

func TestChartsAreWellFormedWhateverTheTextIs(t *testing.T) {
	for _, s := range report().Sections {
		for _, c := range s.Charts {
			all, text := elements(t, c.SVG())
			if all[0].Name.Local != "svg" {
				t.Errorf("%s begins with %s", c.File, all[0].Name.Local)
			}
			for _, e := range all {
				if e.Name.Local == "script" {
					t.Errorf("%s: a label has become an element", c.File)
				}
			}
			if !strings.Contains(text, "prefers-color-scheme:dark") {
				t.Errorf("%s has no dark mode", c.File)
			}
		}
	}
}

func bars(t *testing.T, c Chart) (widths []float64) {
	t.Helper()
	all, _ := elements(t, c.SVG())
	for _, e := range all {
		if class := attribute(e, "class"); e.Name.Local == "rect" && class != "page" {
			w, err := strconv.ParseFloat(attribute(e, "width"), 64)
			if err != nil {
				t.Fatal(err)
			}
			x, err := strconv.ParseFloat(attribute(e, "x"), 64)
			if err != nil || x+w > svgWidth {
				t.Errorf("a bar from %v, %v wide, leaves the picture: %v", x, w, err)
			}
			widths = append(widths, w)
		}
	}
	return widths
}

func TestBarsAreProportionalOrLogarithmic(t *testing.T) {
	linear := Chart{Title: "linear", Unit: UnitMS, Bars: []Bar{{"a", 10, false}, {"b", 20, true}}}
	if w := bars(t, linear); len(w) != 2 || w[0] < 0.49*w[1] || w[0] > 0.51*w[1] {
		t.Errorf("10 and 20 are %v wide", w)
	}
	far := Chart{Title: "far apart", Unit: UnitMS, Bars: []Bar{{"a", 1, false}, {"b", 1000, true}}}
	if w := bars(t, far); len(w) != 2 || w[0] < 10 || w[0] > w[1]/2 {
		t.Errorf("1 and 1000 are %v wide", w)
	}
	if !strings.Contains(far.SVG(), "logarithmic") || strings.Contains(linear.SVG(), "logarithmic") {
		t.Error("the scale is not what is said about it")
	}
	if w := bars(t, Chart{Title: "zero", Bars: []Bar{{"a", 0, false}}}); len(w) != 1 || w[0] != 0 {
		t.Errorf("nothing is %v wide", w)
	}
}

func TestLinesStayInThePicture(t *testing.T) {
	c := Chart{Title: "lines", Unit: UnitMS, XTitle: "n", Lines: []Series{
		{"a", []float64{1, 10, 100, 1000}, []float64{1, 2, 3, 4}},
		{"the same", []float64{1, 10, 100, 1000}, []float64{1, 2, 3, 4}},
		{"one point", []float64{1}, []float64{0}},
		{"none", nil, nil},
	}}
	all, _ := elements(t, c.SVG())
	circles := 0
	for _, e := range all {
		if e.Name.Local != "circle" {
			continue
		}
		circles++
		for name, most := range map[string]float64{"cx": svgWidth, "cy": svgTop + plotHeight + 10} {
			if v, err := strconv.ParseFloat(attribute(e, name), 64); err != nil || v < 0 || v > most {
				t.Errorf("a point at %s=%v: %v", name, v, err)
			}
		}
	}
	if circles != 9+3 {
		t.Errorf("%d points and names, want 12", circles)
	}
	flat := Chart{Title: "flat", Lines: []Series{{"a", []float64{1}, []float64{0}}}}
	elements(t, flat.SVG())
}

func TestChartsAreWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "charts")
	if err := report().WriteCharts(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.svg", "growth.svg"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}
