package template

import (
	"context"
	"encoding/json"
	"io"
	"runtime"
	"slices"
	"strings"

	"pinfold/sandbox"
)

// Descriptor is how OCI documents point at each other.
type Descriptor struct {
	MediaType   string            `json:"mediaType,omitempty"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Platform    *platform         `json:"platform,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

// document is an OCI index or an OCI manifest, or Docker's of the same shape.
type document struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType,omitempty"`
	Manifests     []Descriptor `json:"manifests,omitempty"`
	Config        *Descriptor  `json:"config,omitempty"`
	Layers        []Descriptor `json:"layers,omitempty"`
}

// refName is the annotation under which an index names its images.
const refName = "org.opencontainers.image.ref.name"

func unmarshal(text []byte, v any) error { return json.Unmarshal(text, v) }

// parseDocument reads one.
func parseDocument(text []byte) (document, error) {
	var d document
	if err := unmarshal(text, &d); err != nil {
		return d, invalid("has a manifest that cannot be read: %w", err)
	}
	if d.Config == nil && len(d.Manifests) == 0 {
		return d, invalid("has a manifest that names neither layers nor other manifests")
	}
	return d, nil
}

// forUs returns what of an index is an image for this machine. ref, if not empty, is the
// name that it must have in the index.
func (d document) forUs(ref string) (Descriptor, error) {
	var fit []Descriptor
	var others []string
	for _, m := range d.Manifests {
		name := m.Annotations[refName]
		switch {
		case ref != "" && name != ref && !strings.HasSuffix(name, ":"+ref):
			others = append(others, name)
		case m.Platform != nil && (m.Platform.OS != "linux" || m.Platform.Architecture != runtime.GOARCH):
			others = append(others, m.Platform.OS+"/"+m.Platform.Architecture)
		default:
			fit = append(fit, m)
		}
	}
	others = slices.DeleteFunc(others, func(s string) bool { return s == "" || s == "unknown/unknown" }) // signatures and the like
	offers := sandbox.SafeText(strings.Join(others, ", "), 200)
	switch {
	case len(fit) == 0 && ref != "":
		return Descriptor{}, invalid("\"%s\" is not among those of the archive: %s", sandbox.SafeText(ref, 60), offers)
	case len(fit) == 0:
		return Descriptor{}, invalid("is not for linux/%s; it is there for %s", runtime.GOARCH, offers)
	case len(fit) > 1 && !sameDigest(fit):
		e := invalid("is one of %d in the archive", len(fit))
		e.Hint = "name the one that is meant with --reference: " + names(fit)
		return Descriptor{}, e
	}
	return fit[0], nil
}

func sameDigest(all []Descriptor) bool {
	return !slices.ContainsFunc(all, func(d Descriptor) bool { return d.Digest != all[0].Digest })
}

func names(all []Descriptor) string {
	var list []string
	for _, d := range all {
		list = append(list, d.Annotations[refName])
	}
	return sandbox.SafeText(strings.Join(list, ", "), 200)
}

// check says whether a descriptor points at something that can be read.
func (d Descriptor) check() error {
	if _, ok := parseID(d.Digest); !ok {
		return invalid("names a part of it \"%s\", which is no SHA-256 digest", sandbox.SafeText(d.Digest, 80))
	}
	if d.Size < 0 {
		return invalid("names a part of it with %d bytes", d.Size)
	}
	if strings.HasSuffix(d.MediaType, "+encrypted") {
		return invalid("is encrypted")
	}
	return nil
}

// Source is where the parts of an image are that its documents point at. What it gives
// is hostile: it is compared with the descriptor afterwards.
type Source interface {
	// Document returns a small part, at most MaxDocument bytes.
	Document(ctx context.Context, d Descriptor) ([]byte, error)
	// Layer opens a layer. The caller closes it.
	Layer(ctx context.Context, d Descriptor) (io.ReadCloser, error)
}

// maxNested bounds how many indexes lie in each other.
const maxNested = 4

// Follow puts an image together from its topmost document, an index or a manifest. Of an
// index, the one for this machine is taken, which has the name reference if that is not
// empty. Every digest and every length on the way is checked.
func Follow(ctx context.Context, top []byte, reference string, from Source) (Content, error) {
	doc, err := parseDocument(top)
	if err != nil {
		return Content{}, err
	}
	origin := Origin{Kind: "archive", Reference: reference, Digest: string(hashOf(top))}
	for range maxNested {
		if doc.Config != nil {
			c, err := follow(ctx, doc, from)
			c.From = origin
			return c, err
		}
		d, err := doc.forUs(reference)
		if err != nil {
			return Content{}, err
		}
		if origin.Reference == "" {
			origin.Reference = sandbox.SafeText(d.Annotations[refName], 200)
		}
		origin.Digest, reference = d.Digest, "" // it is chosen
		text, err := verified(ctx, from, d)
		if err != nil {
			return Content{}, err
		}
		if doc, err = parseDocument(text); err != nil {
			return Content{}, err
		}
	}
	return Content{}, invalid("has indexes that lie in each other more than %d deep", maxNested)
}

// follow follows a manifest.
func follow(ctx context.Context, doc document, from Source) (Content, error) {
	config, err := verified(ctx, from, *doc.Config)
	if err != nil {
		return Content{}, err
	}
	c := Content{Config: config}
	for _, l := range doc.Layers {
		if err := l.check(); err != nil {
			return Content{}, err
		}
		open := func(ctx context.Context) (io.ReadCloser, error) { return from.Layer(ctx, l) }
		c.Layers = append(c.Layers, Blob{Digest: l.Digest, Size: l.Size, Open: open})
	}
	return c, nil
}

// verified reads a small part and checks its digest and its length.
func verified(ctx context.Context, from Source, d Descriptor) ([]byte, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	text, err := from.Document(ctx, d)
	if err != nil {
		return nil, err
	}
	return text, Verify(text, d)
}

// Verify compares a small part with what points at it.
func Verify(text []byte, d Descriptor) error {
	if int64(len(text)) != d.Size {
		return invalid("has a part with %d bytes that was said to have %d", len(text), d.Size)
	}
	if got := hashOf(text); string(got) != d.Digest {
		return invalid("has a part that is not the one that was named: its digest is %s, not %s", got, d.Digest)
	}
	return nil
}
