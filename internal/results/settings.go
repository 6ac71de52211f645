package results

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// Setting is one that differs between two cells.
type Setting struct{ Name, A, B string }

// paramServer is the parameter that says which server was measured. Cells of two servers have
// the same parameters otherwise.
const paramServer = "server"

// alike reports whether two cells measured the same, perhaps of different servers.
func (c *Cell) alike(other *Cell) bool {
	without := func(params []Param) []Param {
		return slices.DeleteFunc(slices.Clone(params), func(p Param) bool { return p.Name == paramServer })
	}
	return slices.Equal(without(c.Params), without(other.Params))
}

// workloadSettings returns the settings in which the workloads of two cells differ.
func workloadSettings(a, b *Cell) []Setting { return differing(a.Workload, b.Workload, "seed") }

// targetSettings returns the settings in which the targets of two cells differ.
func targetSettings(a, b *Cell) []Setting {
	settings := differing(a.Target, b.Target, "address")
	if sa, sb := a.Param(paramServer), b.Param(paramServer); sa != sb {
		settings = append(settings, Setting{paramServer, sa, sb})
	}
	return settings
}

// differing compares the fields of two objects, of which one or both may have been read from a
// file. A field that is absent has its zero value. Fields that are objects or lists are not
// settings. If one of the two is not known, it returns nil.
func differing(a, b any, except ...string) []Setting {
	fa, fb := fields(a), fields(b)
	if fa == nil || fb == nil {
		return nil
	}
	all := maps.Clone(fa)
	maps.Copy(all, fb)
	var settings []Setting
	for _, name := range slices.Sorted(maps.Keys(all)) {
		va, vb := fa[name], fb[name]
		if slices.Contains(except, name) || composite(va) || composite(vb) || va == vb || zero(va) && zero(vb) {
			continue
		}
		settings = append(settings, Setting{name, literal(va, vb), literal(vb, va)})
	}
	return settings
}

// fields returns the fields of an object; nil if it is none.
func fields(object any) (f map[string]any) {
	if data, err := json.Marshal(object); err == nil {
		_ = json.Unmarshal(data, &f) // f stays nil
	}
	return f
}

func composite(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return true
	}
	return false
}

func zero(v any) bool { return v == nil || v == 0.0 || v == "" || v == false }

// literal writes a value; an absent one as the zero value of the other.
func literal(v, other any) string {
	if v == nil {
		switch other.(type) {
		case float64:
			v = 0.0
		case bool:
			v = false
		default:
			v = "none"
		}
	}
	if s, ok := v.(string); ok {
		return s
	}
	data, err := json.Marshal(v)
	if err != nil {
		return "?"
	}
	return string(data)
}

// addSettings adds those that are not in the list.
func addSettings(list, more []Setting) []Setting {
	for _, s := range more {
		if !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}

// settingsText lists settings for people.
func settingsText(settings []Setting) string {
	parts := make([]string, len(settings))
	for i, s := range settings {
		parts[i] = s.Name + " " + s.A + " and " + s.B
	}
	return strings.Join(parts, ", ")
}
