// Package engineimage takes images out of a container engine on this machine, Docker or
// Podman, by its API (GET /images/NAME/get, which is what docker save asks for). The
// engine is believed no more than any other archive.
package engineimage

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"pinfold/sandbox"
)

// defaultHost is where the engine listens when nothing is said.
const defaultHost = "unix:///var/run/docker.sock"

// Host returns where the engine listens: $DOCKER_HOST, or Docker's usual socket.
func Host() string { return cmp.Or(os.Getenv("DOCKER_HOST"), defaultHost) }

// Save returns an archive of an image, as docker save writes it. host is a unix socket,
// "unix:///run/podman/podman.sock". The caller closes the archive.
func Save(ctx context.Context, host, image string) (io.ReadCloser, error) {
	socket, ok := strings.CutPrefix(host, "unix://")
	if !ok || !filepath.IsAbs(socket) {
		return nil, &sandbox.Error{
			Code: sandbox.CodeSpecInvalid, Message: fmt.Sprintf("the engine at \"%s\" is not on this machine", sandbox.SafeText(host, 100)),
			Hint: "set DOCKER_HOST to a unix socket, or: docker save IMAGE | pinfold template load -",
		}
	}
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
		DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10,
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://engine/images/"+url.PathEscape(image)+"/get", nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, unreachable(ctx, socket, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	return nil, refused(resp, image)
}

func unreachable(ctx context.Context, socket string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	hint := "start it (sudo systemctl start docker), or set DOCKER_HOST to its socket"
	if errors.Is(err, os.ErrPermission) {
		hint = "run it as root, or as a user who may use Docker: who may, can be root"
	}
	return &sandbox.Error{
		Code: sandbox.CodeDisconnected, Message: fmt.Sprintf("no container engine answers at %s", socket), Err: err, Hint: hint,
	}
}

// maxAnswer bounds what an engine says of an error, in bytes.
const maxAnswer = 16 << 10

func refused(resp *http.Response, image string) error {
	var said struct {
		Message string `json:"message"`
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err == nil {
		err = json.Unmarshal(text, &said)
	}
	why := cmp.Or(said.Message, resp.Status)
	e := &sandbox.Error{Code: sandbox.CodeInternal, Message: "the container engine refuses: " + sandbox.SafeText(why, 300), Err: err}
	if resp.StatusCode == http.StatusNotFound {
		e.Code, e.Hint = sandbox.CodeNotFound, "docker images lists those that it has; to fetch one: pinfold template pull "+sandbox.SafeText(image, 100)
	}
	return e
}
