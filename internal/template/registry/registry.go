// Package registry takes images from registries of OCI images: Docker Hub and those that
// speak as it does.
//
// A registry is hostile, whatever its name: it may lie about a digest or a length, send
// without end, or nothing for ever, or cut what it sends. Small documents are bounded
// before they are read, what they say is checked by package template, and so is every
// layer while it is unpacked. A layer that breaks off is taken up where it ended, as long
// as something comes; who sends too slowly has broken off.
//
// Credentials are those of Docker's files (~/.docker/config.json, and the helpers that
// it names). They go to the registry that was named and to whom it sends us for a token.
package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"pinfold/internal/template"
	"pinfold/sandbox"
)

// Options say how a registry is asked. A zero field has the default.
type Options struct {
	// PlainHTTP speaks without TLS, which otherwise only a registry of this machine's
	// own is spoken to.
	PlainHTTP bool
	// Patience is how long one may wait for an answer, or for the next 32 KiB of it;
	// default 30 seconds.
	Patience time.Duration
	// Tries is how often something is asked for without anything coming of it; default 5.
	Tries int
	// Pause is what is waited before the second try, and twice that before the next;
	// default half a second.
	Pause time.Duration
}

const (
	defaultPatience = 30 * time.Second
	defaultTries    = 5
	defaultPause    = time.Second / 2
	leastBytes      = 32 << 10
	maxRedirects    = 5
)

// Image finds an image by its reference, such as "python:3.13-slim" or
// "ghcr.io/owner/app@sha256:…". Its layers are fetched when they are opened, with ctx of
// then; they can be opened again.
func Image(ctx context.Context, reference string, o Options) (template.Content, error) {
	o.Patience, o.Tries, o.Pause = cmp.Or(o.Patience, defaultPatience), cmp.Or(o.Tries, defaultTries), cmp.Or(o.Pause, defaultPause)
	var how []name.Option
	if o.PlainHTTP {
		how = append(how, name.Insecure)
	}
	ref, err := name.ParseReference(reference, how...)
	if err != nil {
		return template.Content{}, &sandbox.Error{
			Code: sandbox.CodeSpecInvalid, Message: fmt.Sprintf("\"%s\" is no image's reference", sandbox.SafeText(reference, 100)), Err: err,
			Hint: "write it as python:3.13-slim, ghcr.io/owner/app:1 or registry:5000/app@sha256:…",
		}
	}
	r := &repository{ref: ref, o: o}
	if err := r.connect(ctx); err != nil {
		return template.Content{}, r.unreachable(ctx, err)
	}
	top, err := r.manifest(ctx, ref.Identifier())
	if err != nil {
		return template.Content{}, err
	}
	if d, ok := ref.(name.Digest); ok {
		if err := template.Verify(top, template.Descriptor{Digest: d.DigestStr(), Size: int64(len(top))}); err != nil {
			return template.Content{}, err
		}
	}
	c, err := template.Follow(ctx, top, "", r)
	c.From.Kind, c.From.Reference = "registry", ref.Name()
	return c, err
}

// repository is the part of a registry where one image is.
type repository struct {
	ref    name.Reference
	o      Options
	client *http.Client
}

// connect finds out how the registry is spoken to, and gets a token where one is needed.
func (r *repository) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.o.Patience)
	defer cancel()
	base := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert,errcheck // it is one
	base.ResponseHeaderTimeout = r.o.Patience
	base.MaxResponseHeaderBytes = 64 << 10
	base.DialContext = (&net.Dialer{Timeout: r.o.Patience}).DialContext
	repo := r.ref.Context()
	auth, err := authn.Resolve(ctx, authn.DefaultKeychain, repo)
	if err != nil {
		return fmt.Errorf("its credentials: %w", err)
	}
	t, err := transport.NewWithContext(ctx, repo.Registry, auth, base, []string{r.ref.Scope(transport.PullScope)})
	if err != nil {
		base.CloseIdleConnections()
		return err
	}
	r.client = &http.Client{Transport: t, CheckRedirect: checkRedirect}
	return nil
}

// checkRedirect lets a registry send us elsewhere, as most do for layers, but not from
// TLS to where everybody reads along.
func checkRedirect(to *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return errors.New("it sends us from one address to the next")
	}
	if via[0].URL.Scheme == "https" && to.URL.Scheme != "https" {
		return errors.New("it sends us to an address without TLS")
	}
	return nil
}

// get asks for something of the repository, from offset on. Whoever gets a response
// closes its body.
func (r *repository) get(ctx context.Context, what, accept string, offset int64) (*http.Response, error) {
	repo := r.ref.Context()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s://%s/v2/%s/%s", repo.Scheme(), repo.RegistryStr(), repo.RepositoryStr(), what), nil)
	if err != nil {
		return nil, err
	}
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	if offset > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusPartialContent && offset > 0 {
		return resp, nil
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	return nil, transport.CheckError(resp, http.StatusOK)
}

// accepted are the documents that are understood.
var accepted = strings.Join([]string{
	"application/vnd.oci.image.index.v1+json", "application/vnd.oci.image.manifest.v1+json",
	"application/vnd.docker.distribution.manifest.list.v2+json", "application/vnd.docker.distribution.manifest.v2+json",
}, ", ")

// manifest reads an index or a manifest.
func (r *repository) manifest(ctx context.Context, id string) ([]byte, error) {
	return r.small(ctx, "manifests/"+id, accepted)
}

// Document implements template.Source.
func (r *repository) Document(ctx context.Context, d template.Descriptor) ([]byte, error) {
	if strings.Contains(accepted, cmp.Or(d.MediaType, "none")) {
		return r.manifest(ctx, d.Digest)
	}
	return r.small(ctx, "blobs/"+d.Digest, "")
}

// small reads something small, again if it breaks off.
func (r *repository) small(ctx context.Context, what, accept string) (text []byte, err error) {
	for n := range r.o.Tries {
		if err = r.pause(ctx, n); err != nil {
			return nil, err
		}
		if text, err = r.once(ctx, what, accept); err == nil || !transient(ctx, err) {
			break
		}
	}
	return text, r.unreachable(ctx, err)
}

func (r *repository) once(ctx context.Context, what, accept string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, r.o.Patience)
	defer cancel()
	resp, err := r.get(ctx, what, accept, 0)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(io.LimitReader(resp.Body, template.MaxDocument+1))
	if len(text) > template.MaxDocument {
		return nil, &sandbox.Error{Code: sandbox.CodeTooLarge, Message: "the registry sends a manifest that is too long", Hint: "nothing was kept"}
	}
	return text, err
}

// pause waits before the n-th try, from 0.
func (r *repository) pause(ctx context.Context, n int) error {
	if n == 0 {
		return ctx.Err()
	}
	t := time.NewTimer(r.o.Pause << (n - 1))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// Layer implements template.Source.
func (r *repository) Layer(ctx context.Context, d template.Descriptor) (io.ReadCloser, error) {
	return newBlob(ctx, r, d), nil
}
