package docker

import (
	"bytes"
	"os"
	"sync"
	"testing"

	"pinfold/internal/driver/drivertest"
	"pinfold/test/dockerengine"
)

// testEngine is started by the first test that needs it, and ended by TestMain.
type testEngine struct {
	program string
	once    sync.Once
	d       *dockerengine.Engine
	err     error
}

var (
	theDaemon = testEngine{program: dockerengine.Docker}
	thePodman = testEngine{program: dockerengine.Podman}
)

func TestMain(m *testing.M) {
	if runHelper() {
		os.Exit(0)
	}
	code := m.Run()
	for _, e := range []*testEngine{&theDaemon, &thePodman} {
		if e.d != nil {
			e.d.Close()
		}
	}
	os.Exit(code)
}

// engineForTests returns the tests' own Docker engine.
func engineForTests(t *testing.T) string {
	t.Helper()
	return theDaemon.address(t)
}

// address returns where the engine listens that has testImage, or ends the test.
func (e *testEngine) address(t *testing.T) string {
	t.Helper()
	if missing := dockerengine.Missing(e.program); missing != "" {
		drivertest.Missing(t, "%s", missing)
	}
	e.once.Do(func() {
		e.d, e.err = dockerengine.New(e.program)
		if e.err == nil {
			e.err = e.d.Import(t.Context(), testImage, bytes.NewReader(packImage(t)))
		}
	})
	if e.err != nil {
		t.Fatal(e.err)
	}
	return e.d.Address()
}
