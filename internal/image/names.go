package image

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
)

// Name is a name that programs find in a sandbox.
type Name struct {
	Host string
	At   netip.Addr
}

// WithNames is the template of a sandbox in which names can be looked up: in /etc/hosts,
// and from a resolver at an address of its own loopback, who knows the same ones and sees
// which others are asked for.
func (t Template) WithNames(names []Name, resolver netip.Addr) Template {
	t.Files = slices.Clone(t.Files)
	for i, f := range t.Files {
		content := string(f.Content)
		switch f.Path {
		case "/etc/hosts":
			var b strings.Builder
			b.WriteString(content)
			for _, n := range names {
				b.WriteString(n.At.String() + "\t" + n.Host + "\n")
			}
			content = b.String()
		case "/etc/resolv.conf":
			content = "# this resolver knows the declared names, and asks nobody\nnameserver " + resolver.String() + "\noptions timeout:2 attempts:1\n"
		case "/etc/nsswitch.conf":
			content = strings.Replace(content, "\nhosts: files\n", "\nhosts: files dns\n", 1)
		default:
			continue
		}
		t.Files[i].Content = []byte(content)
	}
	return t
}

// Changed are the files that have another content than in an earlier template, which has
// files at the same places.
func (t Template) Changed(earlier Template) (files []File) {
	for i, f := range t.Files {
		if !bytes.Equal(f.Content, earlier.Files[i].Content) {
			files = append(files, f)
		}
	}
	return files
}
