package sandbox

// RunState is where a run stands.
type RunState string

// A run goes from one state to the next, and never back, but for one that a person has to
// approve: it leaves queued for that, and comes back to it. One that is refused or
// cancelled while it waits goes to finished.
const (
	RunPending  RunState = "pending_approval" // a person has to approve it
	RunQueued   RunState = "queued"           // it waits for room
	RunRunning  RunState = "running"          // its sandbox is being made, or its program runs
	RunFinished RunState = "finished"         // it has a result
)

// RunStates lists the states in the order of a run's life.
func RunStates() []RunState { return []RunState{RunPending, RunQueued, RunRunning, RunFinished} }
