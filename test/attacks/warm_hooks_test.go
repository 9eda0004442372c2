//go:build linux

package attacks

import (
	"os"
	"testing"

	"pinfold/sandbox"
	"pinfold/test/ledger"
)

// hookedModule asks to be called around forks in every way that there is.
const hookedModule = `
import os, threading, logging, concurrent.futures.thread
lock, calls = threading.Lock(), []
os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
os.register_at_fork(before=lambda: calls.append("before"), after_in_parent=lambda: calls.append("parent"))
os.register_at_fork(after_in_child=lambda: calls.append("child"))
for wrong in ({}, {"before": 1}, {"other": print}):
    try:
        os.register_at_fork(**wrong)
        calls.append("taken: %r" % wrong)
    except TypeError:
        pass
`

// hookedCode says what was called before it, and what a fork of its own calls.
const hookedCode = `
import os, sys, threading, logging, random
import treasure as t
first = len(t.calls)
locks = lambda: sum([t.lock.locked(), t.concurrent.futures.thread._global_shutdown_lock.locked()])
logging.getLogger().warning("a line")
say("last", t.calls[-1]); say("locks", locks())
os.register_at_fork(after_in_child=lambda: t.calls.append("late"))
read, write = os.pipe()
if os.fork() == 0:
    threading.Thread(target=lambda: os.write(write, repr((t.calls[first:], locks(), random.random())).encode())).start()
    logging.getLogger().warning("another")
    sys.exit()
os.wait()
calls, held, number = eval(os.read(read, 1000))
say("child", ",".join(calls)); say("held", held); say("mine", ",".join(t.calls[first:])); say("same", number == random.random()); say("after", locks())
`

// What modules have registered is called for each fork, but for what only makes
// locks anew, and all of it when a program forks.
func TestForkHooks(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("an ordinary user's interpreters are not forked")
	}
	ledger.Check(t)
	f, err := newArena(t, readPrelude(t)).raise(hookedModule, sandbox.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		out, err := f.tell(hookedCode)
		if err != nil {
			t.Fatal(err)
		}
		got := doorValues(out)
		for key, want := range map[string]string{
			"last": "child", "locks": "0", "after": "0", "held": "0", "child": "before,child,late", "mine": "before,parent", "same": "False",
		} {
			if got[key] != want {
				t.Errorf("%s is %s, not %s", key, got[key], want)
			}
		}
	}
}

// A module with a name that no import can say is loaded, and the zygote's rehearsals
// do without it.
func TestModuleNamedAsKeyword(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("an ordinary user's interpreters are not forked")
	}
	ledger.Check(t)
	f, err := newArena(t, readPrelude(t)).raise("", sandbox.Limits{}, edit{"pinfold_zygote.py", `modules = first["setup"]["modules"] or []`, `modules = ["treasure", "class"]; sys.modules["class"] = sys`})
	if err != nil {
		t.Fatal(err)
	}
	out, err := f.tell(`import sys; say("there", "class" in sys.modules)`)
	if err != nil || doorValues(out)["there"] != "True" {
		t.Errorf("%q, %v", out, err)
	}
}
