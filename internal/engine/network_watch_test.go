package engine

import (
	"errors"
	"testing"
	"time"

	"pinfold/sandbox"
)

// Whoever follows a sandbox's network hears what it reaches and what is denied, as it happens,
// and what it did last before its end.
func TestNetworkIsFollowed(t *testing.T) {
	e, _ := echo(t)
	engine, _ := newEngine(t, always(talks(e)), theirOwn)
	box, err := engine.Create(t.Context(), "local", sandbox.Create{Network: declaring(e)})
	if err != nil {
		t.Fatal(err)
	}
	heard, ended := make(chan sandbox.NetworkUse, 100), make(chan error, 1)
	go func() {
		ended <- box.WatchNetwork(t.Context(), func(u sandbox.NetworkUse) error { heard <- u; return nil })
	}()
	if u := <-heard; len(u.Endpoints) != 1 || u.Endpoints[0].Connections != 0 || len(u.Denied) != 0 {
		t.Errorf("at first: %+v", u)
	}
	if _, err := box.Start(t.Context(), sandbox.Command{Args: []string{"talk"}}); err != nil {
		t.Fatal(err)
	}
	for begun, u := time.Now(), (sandbox.NetworkUse{}); u.Endpoints == nil || u.Endpoints[0].BytesDown < 6 || len(u.Denied) == 0; {
		select {
		case u = <-heard:
		case err := <-ended:
			t.Fatal("it ended: ", err)
		case <-time.After(10*time.Second - time.Since(begun)):
			t.Fatalf("last heard: %+v", u)
		}
	}
	enough := errors.New("enough")
	if err := box.WatchNetwork(t.Context(), func(sandbox.NetworkUse) error { return enough }); !errors.Is(err, enough) {
		t.Error(err)
	}
	if _, err := box.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	var last sandbox.NetworkUse
	if err := box.WatchNetwork(t.Context(), func(u sandbox.NetworkUse) error { last = u; return nil }); err != nil || last.Endpoints[0].BytesUp != 6 {
		t.Errorf("after its end: %+v %v", last, err)
	}
	without, err := engine.Create(t.Context(), "local", sandbox.Create{})
	if err != nil {
		t.Fatal(err)
	}
	if err := without.WatchNetwork(t.Context(), nil); sandbox.AsError(err).Code != sandbox.CodeConflict || sandbox.AsError(err).Hint == "" {
		t.Error(err)
	}
}
