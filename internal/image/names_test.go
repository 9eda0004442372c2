package image

import (
	"net/netip"
	"strings"
	"testing"
)

func TestWithNames(t *testing.T) {
	before := Template{Files: []File{{Path: "/etc/hosts", Content: []byte("127.0.0.1\tlocalhost\n")}, {Path: "/etc/resolv.conf"}, {Path: "/etc/nsswitch.conf", Content: []byte(nsswitch)}, {Path: "/etc/x", Content: []byte("hosts: files\n")}}}
	after := before.WithNames([]Name{{"a.test", netip.MustParseAddr("127.66.0.2")}, {"b.test", netip.MustParseAddr("127.66.0.3")}}, netip.MustParseAddr("127.66.0.1"))
	want := []string{"127.0.0.1\tlocalhost\n127.66.0.2\ta.test\n127.66.0.3\tb.test\n", "nameserver 127.66.0.1\n", "\nhosts: files dns\n", "hosts: files\n"}
	for i, f := range after.Files {
		if !strings.Contains(string(f.Content), want[i]) {
			t.Errorf("%s is %q", f.Path, f.Content)
		}
	}
	if string(before.Files[2].Content) != nsswitch || len(before.Files[1].Content) > 0 {
		t.Error("the template itself was changed")
	}
}
