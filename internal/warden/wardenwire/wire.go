// Package wardenwire is what the host and a virtual machine's process 1, the warden, say
// to each other, and the host's half of it. One line of JSON is one message. The host
// asks, the warden answers; by itself it says only hello and that the sandbox has ended.
//
// Whoever breaks the machine's kernel speaks in the warden's name: the host takes bounded
// lines, and nothing that it hears gives anybody more than the machine has.
package wardenwire

import (
	"pinfold/internal/driver"
	"pinfold/internal/image"
	"pinfold/sandbox"
)

// Names of the machine's ports.
const (
	PortControl = "pinfold.control"
	PortAgent   = "pinfold.agent"
)

// AgentFile is where the initramfs has the agent.
const AgentFile = "/pinfold-agent"

// Version changes whenever a message does.
const Version = 2

// MaxLine bounds a line that the warden says: a report has some 12 KB.
const MaxLine = 256 << 10

// MaxRequest bounds a line that the host says: a template's small files have 1 MB at most.
const MaxRequest = 16 << 20

// Operations of a request.
const (
	OpPrepare = "prepare" // show the template and look what can be enforced: Template → Report
	OpPing    = "ping"    // nothing: it lives
	OpCreate  = "create"  // make the sandbox: Plan, Fresh
	OpRenew   = "renew"   // make the sandbox of a copied machine its own: Fresh
	OpUsage   = "usage"   // → Usage
	OpBegin   = "begin"   // driver.RunMeter → Usage
	OpEnd     = "end"     // driver.RunMeter → Usage
	OpDestroy = "destroy" // end the sandbox, whose Death is told
)

// Request is what the host asks.
type Request struct {
	ID       int64           `json:"id"`
	Op       string          `json:"op"`
	Template *image.Template `json:"template,omitempty"`
	Plan     *driver.Plan    `json:"plan,omitempty"`
	Fresh    *Fresh          `json:"fresh,omitempty"`
}

// Fresh is what makes a machine that goes on from a snapshot like no other. It comes with
// what is the first request to it.
type Fresh struct {
	Seed []byte `json:"seed"` // random bytes
	Time int64  `json:"time"` // nanoseconds since 1970
}

// Reply is what the warden says: to the request of that ID, or by itself.
type Reply struct {
	ID    int64          `json:"id,omitempty"`
	Error *sandbox.Error `json:"error,omitempty"`
	Ended bool           `json:"ended,omitempty"` // the error is driver.ErrEnded

	Hello  *Hello         `json:"hello,omitempty"`
	Report *driver.Report `json:"report,omitempty"`
	Usage  *driver.Usage  `json:"usage,omitempty"`
	Death  *driver.Death  `json:"death,omitempty"`
}

// Hello is the first message.
type Hello struct {
	Version int    `json:"version"`
	Build   string `json:"build"`
	Kernel  string `json:"kernel"` // its release
}
