package wiring

import "pinfold/internal/driver"

// Parts are what an engine is put together from, beside what is always there.
type Parts struct {
	// Agent names the agent's executable; empty means the one that this program carries or
	// has beside itself.
	Agent string
	// Images is the directory of templates that are images; empty: there are none.
	Images string
	// Drivers come after this program's own.
	Drivers []driver.Driver
}
