package bench

import (
	"encoding/json"
	"fmt"
	"math"
)

// Unit says how a column's numbers are written.
type Unit string

// Units.
const (
	UnitMS    Unit = "ms"
	UnitTimes Unit = "×"
	UnitRate  Unit = "/s"
	UnitKB    Unit = "kB"
	UnitMB    Unit = "MB"
	UnitSpeed Unit = "MB/s"
	UnitCount Unit = ""
)

// Column is one column of numbers.
type Column struct {
	Key  string `json:"key"` // in JSON: "median_ms"
	Head string `json:"head"`
	Unit Unit   `json:"unit"`
}

// Row is one line: what was measured, its numbers in the order of the columns
// (NaN: not measured), and what must be known to compare it.
type Row struct {
	What   string
	Values []float64
	Note   string
}

// Table is a table of numbers. First and Last are the heads of the columns of
// words; without Last there are no notes.
type Table struct {
	ID      string
	Title   string // may be empty
	First   string
	Columns []Column
	Last    string
	Rows    []Row
}

// Add appends a row.
func (t *Table) Add(what, note string, values ...float64) {
	t.Rows = append(t.Rows, Row{What: what, Note: note, Values: values})
}

// cells is the table as text, the header first.
func (t *Table) cells() [][]string {
	head := []string{t.First}
	for _, c := range t.Columns {
		head = append(head, c.Head)
	}
	if t.Last != "" {
		head = append(head, t.Last)
	}
	all := [][]string{head}
	for _, r := range t.Rows {
		line := []string{r.What}
		for i, c := range t.Columns {
			v := none
			if i < len(r.Values) {
				v = r.Values[i]
			}
			line = append(line, c.Unit.Format(v))
		}
		if t.Last != "" {
			line = append(line, r.Note)
		}
		all = append(all, line)
	}
	return all
}

// Format writes a number with its unit; what was not measured is "–".
func (u Unit) Format(v float64) string {
	switch {
	case !known(v):
		return "–"
	case u == UnitCount:
		return fmt.Sprintf("%.0f", v)
	case u == UnitKB, u == UnitMB, u == UnitSpeed:
		return fmt.Sprintf("%.0f %s", v, u)
	case u == UnitRate:
		return significant(v) + " " + string(u)
	case u == UnitTimes && v < 0.1:
		return fmt.Sprintf("%.3f ×", v)
	case v >= 100:
		return fmt.Sprintf("%.0f %s", v, u)
	case v >= 20:
		return fmt.Sprintf("%.1f %s", v, u)
	}
	return fmt.Sprintf("%.2f %s", v, u)
}

// significant writes a rate: whole numbers, and a place after the point below 10.
func significant(v float64) string {
	if v < 10 {
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// MarshalJSON writes the rows as objects with the columns' keys. What was not
// measured is null.
func (t Table) MarshalJSON() ([]byte, error) {
	rows := make([]map[string]any, 0, len(t.Rows))
	for _, r := range t.Rows {
		row := map[string]any{"what": r.What}
		if r.Note != "" {
			row["note"] = r.Note
		}
		for i, c := range t.Columns {
			row[c.Key] = nil
			if i < len(r.Values) && known(r.Values[i]) {
				row[c.Key] = math.Round(r.Values[i]*1e4) / 1e4
			}
		}
		rows = append(rows, row)
	}
	return json.Marshal(map[string]any{"id": t.ID, "title": t.Title, "columns": t.Columns, "rows": rows})
}
