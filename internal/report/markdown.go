package report

import (
	"bytes"
	"fmt"
	"strings"
)

// Markdown returns the words and tables of the page, without its pictures.
func (p *Page) Markdown() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s\n\n%s\n\n## Can I trust this?\n\n", escaped(p.Title), escaped(p.Lead))
	for _, c := range p.checks() {
		mark := "✓"
		if !c.OK {
			mark = "!"
		}
		fmt.Fprintf(&b, "- %s %s\n", mark, escaped(c.Text))
	}
	for _, s := range p.sections() {
		if len(s.Text)+len(s.Tables) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n", escaped(s.Title))
		for _, text := range s.Text {
			fmt.Fprintf(&b, "\n%s\n", escaped(text))
		}
		for _, t := range s.Tables {
			t.markdown(&b)
		}
	}
	b.WriteString("\n## How it was measured\n\n")
	for _, fact := range p.facts() {
		fmt.Fprintf(&b, "- %s: %s\n", fact[0], escaped(fact[1]))
	}
	return b.Bytes()
}

func (t *Table) markdown(b *bytes.Buffer) {
	row := func(entries []string) { fmt.Fprintf(b, "| %s |\n", strings.Join(entries, " | ")) }
	b.WriteString("\n")
	var head, rule []string
	for i, name := range t.Head {
		head = append(head, escaped(name))
		if i == 0 {
			rule = append(rule, ":---")
		} else {
			rule = append(rule, "---:")
		}
	}
	row(head)
	row(rule)
	for _, entries := range t.Rows {
		var texts []string
		for _, e := range entries {
			texts = append(texts, escaped(e.Text))
		}
		row(texts)
	}
	if t.Caption != "" {
		fmt.Fprintf(b, "\n%s\n", escaped(t.Caption))
	}
}

// escaped writes text such that Markdown shows it as it is.
func escaped(s string) string {
	return strings.NewReplacer("\n", " ", `\`, `\\`, "|", `\|`, "<", "&lt;", "*", `\*`, "_", `\_`, "`", "\\`").Replace(s)
}
