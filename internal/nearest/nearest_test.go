package nearest

import "testing"

func TestWord(t *testing.T) {
	flags := []string{"memory", "timeout", "cpu-time", "json", "file", "file-size"}
	for word, want := range map[string]string{
		"memroy":   "memory",
		"time-out": "timeout",
		"jsno":     "json",
		"fil":      "file",
		"network":  "",
		"":         "",
		"x":        "",
	} {
		if got := Word(word, flags); got != want {
			t.Errorf("Word(%q) = %q, want %q", word, got, want)
		}
	}
}
