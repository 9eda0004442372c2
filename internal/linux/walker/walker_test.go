//go:build linux

package walker

import (
	"encoding/hex"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// tables walks some tables in Python, as zygotes do.
const tables = `
import sys
sys.path.insert(0, sys.argv[1])
from pinfold_syscalls import At, At32, Table, libc, machine_code
import ctypes
walk, alloc, free = machine_code([bytes.fromhex(piece) for piece in sys.argv[2:]])
word = lambda at: ctypes.c_int64.from_address(at).value
def table(build, calls={"getpid": int(libc.getpid() > 0) and PID, "close": CLOSE}):
    t = Table(calls)
    seen, failed = t.space(64), t.words(7, 7)
    build(t, seen)
    t.back()
    t.label("failed")
    t.store(seen + 56, 1)
    t.back()
    t.at = t.finish("failed")
    t.walk(walk, failed)
    print([word(seen + 8 * i) for i in range(4)], word(seen + 56), word(failed), word(failed + 8))

def stores(t, seen):
    two = t.keep(b"\xff\xff\xff\xff\x05\0\0\0")
    t.store(seen, 40, 30)
    t.store(seen + 8, At(seen), At32(two))  # 10 - -1
    t.store(seen + 16, At32(two + 4))
    t.function("abs", ctypes.cast(libc.abs, ctypes.c_void_p).value, save=seen + 24)
table(stores)

def jumps(t, seen):
    t.expect(At(seen), 0, "failed")
    t.jump("over")
    t.store(seen, 1)
    t.label("over")
    t.store(seen + 8, 0, zero="on")
    t.store(seen, 2)
    t.label("on")
    t.store(seen + 8, 3, zero="failed")
table(jumps)

def errors(t, seen):
    t.attempt("ignored", "close", 999999)
    t.call("pid", "getpid", save=seen)
    t.store(seen, At(seen), libc.getpid())
    t.call("closed", "close", 999999)
    t.store(seen + 8, 9)
table(errors)

def function(t, seen):
    t.function("fails", ctypes.cast(libc.chdir, ctypes.c_void_p).value, error="errno", save=seen)
    t.label("errno")
    libc.__errno_location.restype = ctypes.c_void_p
    t.store(seen + 8, At32(libc.__errno_location()))
    t.expect(0, 1, "failed")
table(function)

arena = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)(alloc)
give = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)(free)
context = (ctypes.c_uint64 * 2)(0x10000, 0x30000)
got = [arena(context, 0x10000) for _ in range(2)]
far = arena(context, 0x10000)
ctypes.memset(far, 1, 0x10000)
MS_ASYNC = 1
there = lambda msync=libc.msync, at=ctypes.c_void_p(far): msync(at, 0x1000, MS_ASYNC)  # what Python maps meanwhile may come to lie there
before, _, after = there(), give(None, far, 0x10000), there()
print(got, far > 0x30000, list(context), arena(context, 1 << 60))
print(before, after)
`

// The code does what doc.go says of the table, with memory that it can only be
// told of while it runs.
func TestWalk(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal("this test walks tables in Python: install python3")
	}
	code := Load()
	args := []string{"-c", strings.NewReplacer("PID", pidCall, "CLOSE", closeCall).Replace(tables), "../../zygote/inside"}
	for _, piece := range [][]byte{code.Walk, code.Alloc, code.Free} {
		if len(piece) == 0 || len(piece) > 512 {
			t.Errorf("a piece of %d bytes", len(piece))
		}
		args = append(args, hex.EncodeToString(piece))
	}
	cmd := exec.Command(python, args...) //nolint:gosec // what is above
	connection, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	cmd.ExtraFiles = []*os.File{connection} // a zygote has its connection to the host there
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := strings.TrimLeft(`
[10, 11, 5, 0] 0 7 7
[0, 3, 0, 0] 0 7 7
[0, 0, 0, 0] 1 4 -9
[0, 14, 0, 0] 1 1 -1
[65536, 131072] True [196608, 196608] None
0 -1
`, "\n")
	if string(out) != want {
		t.Errorf("it printed\n%s, not\n%s", out, want)
	}
}
