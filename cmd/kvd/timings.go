package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/pkg/kvd"
)

// timings is the flag of commands that can report the stages of their call.
type timings struct {
	asked bool
	kvd.Timings
}

func (t *timings) flag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&t.asked, "timings", false, "print to standard error where the time of the call went, also if it failed")
}

// option asks for the timings if the flag does.
func (t *timings) option() kvd.CallOption {
	if !t.asked {
		return kvd.Timed(nil)
	}
	return kvd.Timed(&t.Timings)
}

// print prints them.
func (t *timings) print(a *app) {
	if t.asked {
		fmt.Fprintf(a.err, "%v: %s\n", round(t.Total()), spellStages(stagesOf(&t.Timings)))
	}
}

// stageTime is the time of a call in one stage.
type stageTime struct {
	name string
	took time.Duration
}

// stagesOf lists the stages of a call in their order.
func stagesOf(t *kvd.Timings) []stageTime {
	stages := []stageTime{{"client_queue", t.ClientQueue}, {"network", t.Network}}
	return append(append(stages, serverStages(t)...), stageTime{"return", t.Return})
}

// serverStages lists the stages in the server, with the names of the metric
// kvd_request_stage_seconds.
func serverStages(t *kvd.Timings) []stageTime {
	return []stageTime{
		{"gate", t.Gate}, {"inbox", t.Inbox}, {"batch", t.Batch}, {"engine", t.Engine},
		{"log_write", t.LogWrite}, {"sync", t.Sync}, {"reply", t.Reply},
	}
}

// spellStages formats the stages that took time.
func spellStages(stages []stageTime) string {
	var parts []string
	for _, s := range stages {
		if s.took > 0 {
			parts = append(parts, fmt.Sprintf("%s %v", s.name, round(s.took)))
		}
	}
	return strings.Join(parts, ", ")
}

// longest returns the stages of at least a twentieth of the total, the longest first.
func longest(t *kvd.Timings) []stageTime {
	least := max(t.Total()/20, 1)
	stages := slices.DeleteFunc(stagesOf(t), func(s stageTime) bool { return s.took < least })
	slices.SortStableFunc(stages, func(a, b stageTime) int { return cmp.Compare(b.took, a.took) })
	return stages
}

// round rounds a duration to about three digits.
func round(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}
