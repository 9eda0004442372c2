package sandbox

// RunState is where a run stands.
type RunState string

// A run goes from one state to the next, and never back. One that is refused or
// cancelled while it waits goes from queued to finished.
const (
	RunQueued   RunState = "queued"   // it waits for room
	RunRunning  RunState = "running"  // its sandbox is being made, or its program runs
	RunFinished RunState = "finished" // it has a result
)

// RunStates lists the states in the order of a run's life.
func RunStates() []RunState { return []RunState{RunQueued, RunRunning, RunFinished} }
