package engine

// BeforeTake has f called between choosing a pool and taking from it. It is set
// before the first request.
func (e *Engine) BeforeTake(f func()) { e.pools.BeforeTake = f }

// ForgetProbes has the next request look at the host anew.
func (e *Engine) ForgetProbes() { e.planner.Forget() }
