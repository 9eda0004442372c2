package cgroup

import (
	"cmp"
	"fmt"
	"strconv"
)

// Limits bound a group as a whole. Zero means: not set.
type Limits struct {
	// Memory is in bytes and covers everything that is charged: anonymous
	// memory, files on tmpfs, page cache, kernel memory. Version 1 allows as much
	// again for the buffers of TCP and UDP. With it, the group
	// gets no swap wherever that can be controlled, and on version 2 the OOM
	// killer ends the whole group, unless KillOne is set. Version 1 always ends one
	// process.
	Memory  int64
	KillOne bool
	// Pids is the number of tasks, threads included.
	Pids int64
	// CPUQuotaUS is CPU time in microseconds for each CPUPeriodUS (100,000 by
	// default). The kernel takes periods from 1,000 to 1,000,000 and quotas
	// of at least 1,000.
	CPUQuotaUS  int64
	CPUPeriodUS int64
}

// defaultPeriodUS is what the kernel gives a new group.
const defaultPeriodUS = 100_000

const (
	memoryFileV1 = "memory.limit_in_bytes"
	swapFileV1   = "memory.memsw.limit_in_bytes" // memory and swap together
	// The buffers of TCP and UDP have a limit of their own, and are not counted without one.
	networkFileV1 = "memory.kmem.tcp.limit_in_bytes"
	memoryFileV2  = "memory.max"
	swapFileV2    = "memory.swap.max"
	pidsFile      = "pids.max"
)

// setting is one value for one control file.
type setting struct {
	controller Controller
	file       string
	value      string
	optional   bool // the file may be missing, nothing else may go wrong
}

// settings says how the kernel is told, in the order in which it must be.
func (h *Hierarchy) settings(l Limits) []setting {
	itoa := func(n int64) string { return strconv.FormatInt(n, 10) }
	var all []setting
	if l.Memory > 0 && h.version == 1 {
		all = append(all,
			setting{Memory, memoryFileV1, itoa(l.Memory), false},
			setting{Memory, swapFileV1, itoa(l.Memory), !h.swapFile},
			setting{Memory, "memory.swappiness", "0", true},
			setting{Memory, networkFileV1, itoa(l.Memory), true})
	}
	if l.Memory > 0 && h.version == 2 {
		group := "1"
		if l.KillOne {
			group = "0"
		}
		all = append(all,
			setting{Memory, memoryFileV2, itoa(l.Memory), false},
			setting{Memory, swapFileV2, "0", !h.swapFile},
			setting{Memory, "memory.oom.group", group, false})
	}
	if l.Pids > 0 {
		all = append(all, setting{Pids, pidsFile, itoa(l.Pids), false})
	}
	if l.CPUQuotaUS > 0 {
		period := l.CPUPeriodUS
		period = cmp.Or(period, defaultPeriodUS)
		if h.version == 1 {
			// Each of these writes walks every cpu group of the host, so the
			// period that a new group has anyway is not written.
			if period != defaultPeriodUS {
				all = append(all, setting{CPU, "cpu.cfs_period_us", itoa(period), false})
			}
			all = append(all, setting{CPU, "cpu.cfs_quota_us", itoa(l.CPUQuotaUS), false})
		} else {
			all = append(all, setting{CPU, "cpu.max", itoa(l.CPUQuotaUS) + " " + itoa(period), false})
		}
	}
	return all
}

// check refuses limits that cannot mean anything or that this host cannot
// enforce: a limit is never left out silently.
func (h *Hierarchy) check(l Limits) error {
	for _, limit := range []struct {
		controller Controller
		value      int64
	}{{Memory, l.Memory}, {Pids, l.Pids}, {CPU, l.CPUQuotaUS}, {CPU, l.CPUPeriodUS}} {
		if limit.value < 0 {
			return fmt.Errorf("a negative %s limit: %d", limit.controller, limit.value)
		}
		if s := h.support[limit.controller]; limit.value > 0 && s.Answer != Yes {
			return fmt.Errorf("the %s controller cannot be used: %s", limit.controller, s.Because)
		}
	}
	if l.CPUPeriodUS > 0 && l.CPUQuotaUS == 0 {
		return fmt.Errorf("a CPU period of %d µs without a quota", l.CPUPeriodUS)
	}
	return nil
}
