// Package failpoint names moments at which the process may be killed by a test,
// to see that nothing is lost or left behind. In a normal build Hit is empty
// and costs nothing; with the build tag "failpoints" it kills the process with
// SIGKILL when PINFOLD_FAILPOINT names the moment: "run.machine", or
// "run.machine:3" for the third time that it is reached.
//
// It is for tests of crashes only.
package failpoint

// Env is the variable that names the moment.
const Env = "PINFOLD_FAILPOINT"

// names are all moments, in the order of a life.
var names = []string{
	"key.written",           // the first key is in a file, nobody knows it
	"key.stored",            // it opens the server, its file has not its name yet
	"native.claimed",        // the driver has said that this process lives
	"native.leased",         // a block of user ids is leased, nothing uses it
	"native.cgroup",         // the cgroup is there, nobody is in it
	"native.spawned",        // the agent's process is there and waits
	"native.created",        // the machine is complete
	"native.zygote",         // a zygote is there and has loaded nothing
	"native.forked",         // a zygote's child is in its machine, nobody knows
	"native.killed",         // its processes are gone, its traces are not
	"native.uncgrouped",     // the cgroup is gone, the ids are still leased
	"native.destroyed",      // nothing is left of it
	"processdriver.leased",  // the process driver has a block of user ids, nothing uses it
	"processdriver.places",  // a machine's directory is there, nothing uses it
	"processdriver.spawned", // its supervisor is there
	"processdriver.killed",  // its processes are gone, its traces are not
	"processdriver.removed", // its directory is gone, the ids are still leased
	"gvisor.leased",         // the gvisor driver has a block of user ids, nothing uses it
	"gvisor.cgroup",         // the cgroup is there, nobody is in it
	"gvisor.spawned",        // the process that becomes runsc is there and waits
	"gvisor.ready",          // its agent is ready, nobody knows
	"gvisor.killed",         // its processes are gone, its traces are not
	"gvisor.uncgrouped",     // the cgroup is gone, the ids are still leased
	"create.journalled",     // a sandbox is recorded, nothing was made for it
	"create.machine",        // its machine is there, nobody knows
	"create.running",        // it is recorded as running
	"process.started",       // a process runs in it
	"process.ended",         // and has ended
	"end.recorded",          // its end has begun
	"end.destroyed",         // its machine is gone
	"end.finished",          // and that is recorded
	"snapshot.paused",       // a sandbox stands still for a snapshot
	"snapshot.copied",       // all of it is in a file, and the sandbox goes on
	"snapshot.written",      // the file is on the disk and has not its name yet
	"snapshot.placed",       // it has its name and is not recorded
	"snapshot.recorded",     // it is recorded, nobody knows
	"snapshot.forgotten",    // it is removed from the records, its file is there
	"snapshot.collected",    // the next process has removed what was not whole
	"restore.machine",       // a machine that is to have files is there
	"restore.files",         // and has them
	"pool.made",             // a machine waits to be put into its pool
	"pool.taken",            // a machine was taken from its pool
	"run.recorded",          // a run is recorded, nothing was made for it
	"run.detached",          // the same for one that goes on by itself; nobody knows its id
	"run.admitted",          // there is room for it
	"run.machine",           // its machine is there
	"run.filled",            // its files are inside
	"run.executed",          // its program has ended
	"run.collected",         // its files have come out
	"run.destroyed",         // its machine is gone
	"run.finished",          // its result is recorded, nobody has got it
	"store.begun",           // a transaction is open
	"store.committed",       // a transaction is committed, nobody knows
	"recover.leftovers",     // the next process has removed what was left
	"recover.sandboxes",     // and has recorded sandboxes as lost
	"recover.runs",          // and runs
}

// Names returns all moments.
func Names() []string { return append([]string(nil), names...) }
