package engine_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine"
	"pinfold/internal/guest"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// mute is an agent that greets, reads, and never answers.
func mute(conn net.Conn) {
	hello := wire.AppendMessage(nil, wire.KindHello, 0, &wire.Hello{Version: wire.Version, Agent: "mute"})
	if _, err := conn.Write(hello); err == nil {
		_, _ = io.Copy(io.Discard, conn)
	}
}

// stays is an agent that goes on after the end of its connection, as one does
// that was stopped.
func stays(stop <-chan struct{}) func(net.Conn) {
	return func(conn net.Conn) {
		mute(conn)
		<-stop
	}
}

// A sandbox whose agent has fallen silent ends: nothing can be done in it.
func TestSandboxesOfSilentAgentsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := make(chan struct{})
		s := serve(t, engine.Options{}, func(driver.Plan) fake.Script { return fake.Script{Agent: stays(stop)} })
		x := s.create(t, sandbox.Create{})
		_, err := x.Stat(context.Background(), "f")
		if known := sandbox.AsError(err); !errors.Is(err, guest.ErrSilent) || known.Code != sandbox.CodeProtocol || known.Hint == "" {
			t.Errorf("%v", err)
		}
		time.Sleep(time.Second)
		close(stop) // a real one is killed by Destroy
		<-x.Ended()
		if info := x.Info(); info.Cause == nil || info.Cause.Kind != sandbox.CauseLost || info.Cause.Evidence == "" {
			t.Errorf("%+v", info.Cause)
		}
		if _, err := x.Stat(context.Background(), "f"); sandbox.AsError(err).Code != sandbox.CodeGone {
			t.Errorf("afterwards: %v", err)
		}
	})
}
