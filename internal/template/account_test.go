//go:build linux

package template

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The user is looked up as the image's layers show it, and by no path that leads out.
func TestAccount(t *testing.T) {
	const (
		passwd = "root:x:0:0:root:/root:/bin/sh\nbroken\napp:x:10:20:An app:/srv/app/:/bin/sh\nodd:x:11:21::relative:\nwrong:x:none:1::/:\n"
		group  = "root:x:0:\nstaff:x:50:app\n"
	)
	low := tarOf(t, entry{name: "etc/passwd", content: passwd}, entry{name: "etc/group", content: group})
	for name, c := range map[string]struct {
		user string
		top  []entry
		want Account
		fail bool
	}{
		"none":               {"", nil, Account{"root", 0, 0, "/root"}, false},
		"a name":             {"app", nil, Account{"app", 10, 20, "/srv/app"}, false},
		"a number":           {"10", nil, Account{"app", 10, 20, "/srv/app"}, false},
		"an unknown number":  {"7:8", nil, Account{"", 7, 8, "/"}, false},
		"a group":            {"app:staff", nil, Account{"app", 10, 50, "/srv/app"}, false},
		"a relative home":    {"odd", nil, Account{"odd", 11, 21, "/"}, false},
		"an unknown name":    {"nobody", nil, Account{}, true},
		"an unknown group":   {"app:nobody", nil, Account{}, true},
		"not a number":       {"wrong", nil, Account{}, true},
		"too large a number": {"4294967296", nil, Account{}, true},
		"hidden":             {"app", []entry{{name: "etc/.wh.passwd"}}, Account{}, true},
		"opaque":             {"app", []entry{{name: "etc/.wh..wh..opq"}}, Account{}, true},
		"another":            {"new", []entry{{name: "etc/passwd", content: "new:x:5:6::/n:"}}, Account{"new", 5, 6, "/n"}, false},
		"through a link":     {"new", []entry{{name: "etc/passwd -> ../../run/p"}, {name: "run/p", content: "new:x:5:6::/n:"}}, Account{"new", 5, 6, "/n"}, false},
		"a link to the host": {"daemon", []entry{{name: "etc/passwd -> ../../../../../../../../../../../../../etc/passwd"}}, Account{}, true},
		"a directory":        {"app", []entry{{name: "etc/.wh.passwd"}, {name: "etc/passwd/"}}, Account{}, true},
		"hidden, and a file": {"app", []entry{{name: ".wh.etc"}, {name: "etc", content: "x"}}, Account{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, Limits{})
			tars := [][]byte{low}
			if c.top != nil {
				tars = append(tars, tarOf(t, c.top...))
			}
			var layers []Blob
			for _, b := range tars {
				layers = append(layers, blobOf(b))
			}
			config := ociConfig{}
			config.Config.User = c.user
			for _, b := range tars {
				config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, string(hashOf(b)))
			}
			if _, err := s.Add(t.Context(), "app", Content{Config: asJSON(t, config), Layers: layers}, nil); err != nil {
				t.Fatal(err)
			}
			u, err := s.Use("app")
			if err != nil {
				t.Fatal(err)
			}
			defer u.Close()
			got, err := u.Account()
			if (err != nil) != c.fail {
				t.Fatalf("%+v, %v", got, err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
